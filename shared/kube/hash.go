package kube

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"treadle/shared/cluster"
)

// HashVersion names the way in which NodePool.Hash and NodeClass.Hash are made. It goes into the hash-version annotations beside the
// hashes; hashes of different versions are never compared, so nodes that Karpenter made do not count as drifted (N-033 to N-035).
const HashVersion = cluster.HashVersion

// templateHash is the hash of what a pool gives its nodes. Requirements are left out: they are checked against the node itself.
// Lists count as sets, and what is not set does not count (N-032).
func templateHash(t cluster.NodeTemplate) string {
	t.Requirements = nil
	t.Taints = asSet(t.Taints)
	t.StartupTaints = asSet(t.StartupTaints)
	return hash(t)
}

// classHash is the hash of what a class gives its instances. Selectors are left out: what they select is compared instead. So
// are prefixes and the literal family, for which the resolved one stands (C-116).
func classHash(s cluster.NodeClassSpec) string {
	s.AMIFamily = family(s)
	s.SubnetSelectorTerms, s.SecurityGroupSelectorTerms = nil, nil
	s.AMISelectorTerms, s.ReservationSelectorTerms = nil, nil
	s.IPPrefixCount = nil
	s.BlockDevices = asSet(s.BlockDevices)
	s.NetworkInterfaces = asSet(s.NetworkInterfaces)
	if s.Kubelet != nil {
		k := *s.Kubelet
		k.ClusterDNS = asSet(k.ClusterDNS)
		s.Kubelet = &k
	}
	return hash(s)
}

// family is the image family of a class in lower case: the given one, or that of its alias.
func family(s cluster.NodeClassSpec) string {
	if s.AMIFamily != "" {
		return strings.ToLower(s.AMIFamily)
	}
	for _, t := range s.AMISelectorTerms {
		if name, _, ok := strings.Cut(t.Alias, "@"); ok {
			return strings.ToLower(name)
		}
	}
	return ""
}

// hash is a digest of v's JSON, in which maps are sorted and empty fields are left out.
func hash(v any) string {
	sum := sha256.Sum256(encode(v))
	return hex.EncodeToString(sum[:8])
}

// asSet returns the elements without regard to their order.
func asSet[T any](in []T) []T {
	out := slices.Clone(in)
	slices.SortFunc(out, func(a, b T) int { return bytes.Compare(encode(a), encode(b)) })
	return out
}

// encode writes one of the nouns as JSON, which cannot fail: they hold no channels, functions or cycles.
func encode(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic("kube: encode a noun: " + err.Error())
	}
	return out
}
