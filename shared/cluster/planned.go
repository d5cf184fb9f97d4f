package cluster

import "strings"

// AnnotationPlanned holds the UIDs of the pods that a NodeClaim was made for, separated by commas. While the claim is in
// flight nothing else says whom its room is for, so that planning again would have to guess.
const AnnotationPlanned = "treadle.sh/planned-pods"

// PlannedPods returns the pods that c was made for, nil if c does not say.
func PlannedPods(c *NodeClaim) []PodUID {
	text := c.Annotations[AnnotationPlanned]
	if text == "" {
		return nil
	}
	var out []PodUID
	for uid := range strings.SplitSeq(text, ",") {
		out = append(out, PodUID(uid))
	}
	return out
}

// FormatPlanned returns the value of AnnotationPlanned for pods.
func FormatPlanned(pods []PodRef) string {
	var b strings.Builder
	for i, p := range pods {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(string(p.UID))
	}
	return b.String()
}
