package kubernetes

// Process returns the id of a component's process, for tests that kill it; 0 if there is none.
func (c *Cluster) Process(name string) int {
	for _, p := range c.processes {
		if p.name == name {
			return p.cmd.Process.Pid
		}
	}
	return 0
}

// Processes returns the ids of all processes.
func (c *Cluster) Processes() []int {
	var ids []int
	for _, p := range c.processes {
		ids = append(ids, p.cmd.Process.Pid)
	}
	return ids
}
