package stack

import (
	"cmp"
	"time"

	"treadle/infra/deployment"
	"treadle/infra/local/quickstart"
)

// functions lists Treadle's functions with the time limits that the stack was given.
func (s *Stack) functions() []deployment.Function {
	all := deployment.Functions()
	for i := range all {
		all[i].Timeout = cmp.Or(s.options.Timeouts[all[i].Name], all[i].Timeout)
	}
	return all
}

// grace is how much longer than its function may run a message is invisible.
func (s *Stack) grace(f deployment.Function) time.Duration {
	if s.options.Timeouts[f.Name] != 0 {
		return time.Second
	}
	return 5 * time.Second
}

// Functions returns the names of Treadle's functions.
func Functions() []string {
	var names []string
	for _, f := range deployment.Functions() {
		names = append(names, f.Name)
	}
	return names
}

// Quickstart returns one of the manifests that a new cluster starts with.
func Quickstart(file string) ([]byte, error) { return quickstart.Files.ReadFile(file) }
