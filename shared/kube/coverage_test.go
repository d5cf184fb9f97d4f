package kube

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// Each table says of every field of a type what becomes of it: "carried", or why it is left out. A field that a new version of
// the API adds is in neither and fails the test, so that it cannot be overlooked.
const (
	carried     = "carried"
	runtimeOnly = "concerns the node's runtime, not the choice of a node"
)

func TestCoverage_EveryFieldIsCarriedOrLeftOutForAReason(t *testing.T) {
	t.Parallel()
	tables := []struct {
		of     any
		fields map[string]string
	}{
		{corev1.PodSpec{}, map[string]string{
			"Volumes":                       carried,
			"InitContainers":                carried,
			"Containers":                    carried,
			"EphemeralContainers":           "may not ask for resources or ports",
			"RestartPolicy":                 "whether a pod comes back is its controller's matter",
			"TerminationGracePeriodSeconds": carried,
			"ActiveDeadlineSeconds":         runtimeOnly,
			"DNSPolicy":                     runtimeOnly,
			"NodeSelector":                  carried,
			"ServiceAccountName":            runtimeOnly,
			"DeprecatedServiceAccount":      runtimeOnly,
			"AutomountServiceAccountToken":  runtimeOnly,
			"NodeName":                      carried,
			"HostNetwork":                   "the API server has turned its ports into host ports; templates of DaemonSets are read for it",
			"HostPID":                       runtimeOnly,
			"HostIPC":                       runtimeOnly,
			"ShareProcessNamespace":         runtimeOnly,
			"SecurityContext":               runtimeOnly,
			"ImagePullSecrets":              runtimeOnly,
			"Hostname":                      runtimeOnly,
			"Subdomain":                     runtimeOnly,
			"Affinity":                      carried,
			"SchedulerName":                 carried,
			"Tolerations":                   carried,
			"HostAliases":                   runtimeOnly,
			"PriorityClassName":             carried,
			"Priority":                      carried,
			"DNSConfig":                     runtimeOnly,
			"ReadinessGates":                runtimeOnly,
			"RuntimeClassName":              "its overhead and node selector are written into the pod at admission",
			"EnableServiceLinks":            runtimeOnly,
			"PreemptionPolicy":              "preemption is the scheduler's; a nominated node is carried",
			"Overhead":                      carried,
			"TopologySpreadConstraints":     carried,
			"SetHostnameAsFQDN":             runtimeOnly,
			"OS":                            "the scheduler does not look at it: node selectors say what the pod needs",
			"HostUsers":                     runtimeOnly,
			"SchedulingGates":               carried,
			"ResourceClaims":                carried,
			"Resources":                     carried,
			"HostnameOverride":              runtimeOnly,
			"SchedulingGroup":               "gangs are the scheduler's matter; their pods are planned for one by one",
			"EvictionResponders":            "evictions go through the API, which asks them",
		}},
		{corev1.Container{}, map[string]string{
			"Name":                     "pairs a container with its status only",
			"Image":                    runtimeOnly,
			"Command":                  runtimeOnly,
			"Args":                     runtimeOnly,
			"WorkingDir":               runtimeOnly,
			"Ports":                    carried,
			"EnvFrom":                  runtimeOnly,
			"Env":                      runtimeOnly,
			"Resources":                carried,
			"ResizePolicy":             runtimeOnly,
			"RestartPolicy":            carried,
			"RestartPolicyRules":       runtimeOnly,
			"VolumeMounts":             runtimeOnly,
			"VolumeDevices":            runtimeOnly,
			"LivenessProbe":            runtimeOnly,
			"ReadinessProbe":           runtimeOnly,
			"StartupProbe":             runtimeOnly,
			"Lifecycle":                runtimeOnly,
			"TerminationMessagePath":   runtimeOnly,
			"TerminationMessagePolicy": runtimeOnly,
			"ImagePullPolicy":          runtimeOnly,
			"SecurityContext":          runtimeOnly,
			"Stdin":                    runtimeOnly,
			"StdinOnce":                runtimeOnly,
			"TTY":                      runtimeOnly,
		}},
		{corev1.TopologySpreadConstraint{}, map[string]string{
			"MaxSkew": carried, "TopologyKey": carried, "WhenUnsatisfiable": carried, "LabelSelector": carried,
			"MinDomains": carried, "NodeAffinityPolicy": carried, "NodeTaintsPolicy": carried, "MatchLabelKeys": carried,
		}},
		{corev1.PodAffinityTerm{}, map[string]string{
			"LabelSelector": carried, "Namespaces": carried, "TopologyKey": carried, "NamespaceSelector": carried,
			"MatchLabelKeys":    "the API server has merged it into the selector",
			"MismatchLabelKeys": "the API server has merged it into the selector",
		}},
		{corev1.Toleration{}, map[string]string{
			"Key": carried, "Operator": carried, "Value": carried, "Effect": carried, "TolerationSeconds": carried,
		}},
		{corev1.NodeSpec{}, map[string]string{
			"PodCIDR":             "addresses are the network plugin's",
			"PodCIDRs":            "addresses are the network plugin's",
			"ProviderID":          carried,
			"Unschedulable":       carried,
			"Taints":              carried,
			"ConfigSource":        "removed from Kubernetes",
			"PodPreemptionPolicy": "preemption is the scheduler's",
			"DoNotUseExternalID":  "removed from Kubernetes",
		}},
	}
	for _, table := range tables {
		kind := reflect.TypeOf(table.of)
		t.Run(kind.Name(), func(t *testing.T) {
			t.Parallel()
			var have []string
			for field := range kind.Fields() {
				have = append(have, field.Name)
			}
			slices.Sort(have)
			require.Equal(t, have, slices.Sorted(maps.Keys(table.fields)))
		})
	}
}
