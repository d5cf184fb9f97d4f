package cluster

import "strings"

// WellKnown reports whether key is a label that Karpenter's API defines and whose value comes from the offering (S-016,
// S-017). A pod may ask for it although the pool does not mention it.
func WellKnown(key string) bool {
	switch key {
	case LabelNodePool, LabelZone, LabelRegion, LabelInstanceType, LabelArch, LabelOS, LabelCapacityType, LabelWindowsBuild,
		LabelZoneID:
		return true
	}
	suffix, ours := strings.CutPrefix(key, "karpenter.k8s.aws/")
	return ours && wellKnownAWS(suffix)
}

func wellKnownAWS(suffix string) bool {
	switch suffix {
	case "capacity-reservation-id", "capacity-reservation-type", "capacity-reservation-interruptible",
		"instance-hypervisor", "instance-encryption-in-transit-supported", "instance-category",
		"instance-capability-flex", "instance-family", "instance-generation", "instance-size", "instance-local-nvme",
		"instance-cpu", "instance-cpu-manufacturer", "instance-cpu-sustained-clock-speed-mhz", "instance-memory",
		"instance-ebs-bandwidth", "instance-network-bandwidth", "instance-gpu-name", "instance-gpu-manufacturer",
		"instance-gpu-count", "instance-gpu-memory", "instance-accelerator-name", "instance-accelerator-manufacturer",
		"instance-accelerator-count", "instance-tenancy", "placement-group-id", "placement-group-partition":
		return true
	}
	return false
}

// Restricted reports whether key belongs to Karpenter or names a host, so that neither a pool nor a pod may ask for it
// (S-018).
func Restricted(key string) bool {
	if key == LabelHostname {
		return true
	}
	if WellKnown(key) {
		return false
	}
	domain, _, found := strings.Cut(key, "/")
	return found && (within(domain, "karpenter.sh") || within(domain, "karpenter.k8s.aws"))
}

func within(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}

// NormalKey returns the current name of a label that has older ones, and key itself otherwise (S-022).
func NormalKey(key string) string {
	switch key {
	case "failure-domain.beta.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone":
		return LabelZone
	case "failure-domain.beta.kubernetes.io/region":
		return LabelRegion
	case "beta.kubernetes.io/arch":
		return LabelArch
	case "beta.kubernetes.io/os":
		return LabelOS
	case "beta.kubernetes.io/instance-type":
		return LabelInstanceType
	}
	return key
}

// hint suggests a key that the user may have meant (S-013): one defined here or well known, a few edits away: not
// more than three, nor than a quarter of the key.
func (rs Requirements) hint(key string) string {
	best, distance := "", min(3, len(key)/4)+1
	consider := func(candidate string) {
		if d := edits(key, candidate, distance); d < distance {
			best, distance = candidate, d
		}
	}
	for _, r := range rs {
		consider(r.Key)
	}
	for _, candidate := range []string{LabelNodePool, LabelZone, LabelRegion, LabelInstanceType, LabelArch, LabelOS, LabelCapacityType} {
		consider(candidate)
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

// edits returns the Levenshtein distance of a and b, or limit if it is not below limit.
func edits(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}
