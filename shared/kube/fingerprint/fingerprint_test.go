package fingerprint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/kube/fingerprint"
)

func pool(t *testing.T, template string) string {
	t.Helper()
	sum, err := fingerprint.NodePool([]byte(`{"kind":"NodePool","spec":{"template":` + template + `}}`))
	require.NoError(t, err)
	return sum
}

func class(t *testing.T, spec string) string {
	t.Helper()
	sum, err := fingerprint.NodeClass([]byte(`{"spec":`+spec+`}`), []byte("authority"))
	require.NoError(t, err)
	return sum
}

// The spec's rows N-032 and C-116 say what counts. That the sums are Karpenter's own is tested in infra/karpenter.
func TestNodePool_ChangesWithWhatANodeIsMadeOfAndNothingElse(t *testing.T) {
	t.Parallel()
	const base = `{"metadata":{"labels":{"a":"1"}},"spec":{"nodeClassRef":{"name":"default"},"expireAfter":"720h","taints":[{"key":"x"},{"key":"y"}]}}`
	for name, same := range map[string]string{
		"requirements":        `{"metadata":{"labels":{"a":"1"}},"spec":{"requirements":[{"key":"z"}],"nodeClassRef":{"name":"default"},"expireAfter":"720h","taints":[{"key":"x"},{"key":"y"}]}}`,
		"the order of taints": `{"metadata":{"labels":{"a":"1"}},"spec":{"nodeClassRef":{"name":"default"},"expireAfter":"720h","taints":[{"key":"y"},{"key":"x"}]}}`,
		"another spelling":    `{"metadata":{"labels":{"a":"1"}},"spec":{"nodeClassRef":{"name":"default"},"expireAfter":"43200m","taints":[{"key":"x"},{"key":"y"}]}}`,
	} {
		require.Equal(t, pool(t, base), pool(t, same), name)
	}
	for name, other := range map[string]string{
		"a label":   `{"metadata":{"labels":{"a":"2"}},"spec":{"nodeClassRef":{"name":"default"},"expireAfter":"720h","taints":[{"key":"x"},{"key":"y"}]}}`,
		"a taint":   `{"metadata":{"labels":{"a":"1"}},"spec":{"nodeClassRef":{"name":"default"},"expireAfter":"720h","taints":[{"key":"x"}]}}`,
		"the class": `{"metadata":{"labels":{"a":"1"}},"spec":{"nodeClassRef":{"name":"other"},"expireAfter":"720h","taints":[{"key":"x"},{"key":"y"}]}}`,
		"never":     `{"metadata":{"labels":{"a":"1"}},"spec":{"nodeClassRef":{"name":"default"},"expireAfter":"Never","taints":[{"key":"x"},{"key":"y"}]}}`,
	} {
		require.NotEqual(t, pool(t, base), pool(t, other), name)
	}
}

func TestNodeClass_ChangesWithWhatAnInstanceIsMadeOfAndNothingElse(t *testing.T) {
	t.Parallel()
	const base = `{"amiSelectorTerms":[{"alias":"al2023@latest"}],"userData":"x","blockDeviceMappings":[{"deviceName":"a"},{"deviceName":"b"}]}`
	for name, same := range map[string]string{
		"subnets":               `{"subnetSelectorTerms":[{"id":"s"}],"amiSelectorTerms":[{"alias":"al2023@latest"}],"userData":"x","blockDeviceMappings":[{"deviceName":"a"},{"deviceName":"b"}]}`,
		"an image's version":    `{"amiSelectorTerms":[{"alias":"al2023@v1"}],"userData":"x","blockDeviceMappings":[{"deviceName":"a"},{"deviceName":"b"}]}`,
		"the alias's family":    `{"amiFamily":"AL2023","amiSelectorTerms":[{"id":"ami-1"}],"userData":"x","blockDeviceMappings":[{"deviceName":"a"},{"deviceName":"b"}]}`,
		"prefixes":              `{"ipPrefixCount":1,"amiSelectorTerms":[{"alias":"al2023@latest"}],"userData":"x","blockDeviceMappings":[{"deviceName":"a"},{"deviceName":"b"}]}`,
		"the order of a volume": `{"amiSelectorTerms":[{"alias":"al2023@latest"}],"userData":"x","blockDeviceMappings":[{"deviceName":"b"},{"deviceName":"a"}]}`,
	} {
		require.Equal(t, class(t, base), class(t, same), name)
	}
	for name, other := range map[string]string{
		"user data":  `{"amiSelectorTerms":[{"alias":"al2023@latest"}],"userData":"y","blockDeviceMappings":[{"deviceName":"a"},{"deviceName":"b"}]}`,
		"the family": `{"amiSelectorTerms":[{"alias":"bottlerocket@latest"}],"userData":"x","blockDeviceMappings":[{"deviceName":"a"},{"deviceName":"b"}]}`,
		"a volume":   `{"amiSelectorTerms":[{"alias":"al2023@latest"}],"userData":"x","blockDeviceMappings":[{"deviceName":"a"}]}`,
		"the role":   `{"role":"r","amiSelectorTerms":[{"alias":"al2023@latest"}],"userData":"x","blockDeviceMappings":[{"deviceName":"a"},{"deviceName":"b"}]}`,
	} {
		require.NotEqual(t, class(t, base), class(t, other), name)
	}
	rotated, err := fingerprint.NodeClass([]byte(`{"spec":`+base+`}`), []byte("another authority"))
	require.NoError(t, err)
	require.NotEqual(t, class(t, base), rotated, "instances trust the authority that they were started with")
}

func TestHashes_OfWhatCannotBeReadAreErrors(t *testing.T) {
	t.Parallel()
	_, err := fingerprint.NodePool([]byte(`{"spec":{"template":{"spec":{"expireAfter":"soon"}}}}`))
	require.ErrorContains(t, err, "soon")
	_, err = fingerprint.NodeClass([]byte(`{"spec":{"blockDeviceMappings":[{"ebs":{"volumeSize":"big"}}]}}`), nil)
	require.Error(t, err)
}
