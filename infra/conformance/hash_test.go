package main

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	aws "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"

	"treadle/shared/cluster"
	"treadle/shared/kube/fingerprint"
)

func TestHashVersions_AreKarpenters(t *testing.T) {
	t.Parallel()
	require.Equal(t, karpenter.NodePoolHashVersion, cluster.HashVersionNodePool)
	require.Equal(t, aws.EC2NodeClassHashVersion, cluster.HashVersionNodeClass)
}

func TestHashOfANodePool_IsKarpenters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pool := karpenter.NodePool{Spec: karpenter.NodePoolSpec{Template: karpenter.NodeClaimTemplate{
			ObjectMeta: karpenter.ObjectMeta{Labels: texts(t, "labels"), Annotations: texts(t, "annotations")},
			Spec: karpenter.NodeClaimTemplateSpec{
				Taints: taints(t, "taints"), StartupTaints: taints(t, "startupTaints"),
				Requirements: []karpenter.NodeSelectorRequirementWithMinValues{{Key: text(t, "requirement"), Operator: corev1.NodeSelectorOpExists}},
				NodeClassRef: &karpenter.NodeClassReference{Group: text(t, "group"), Kind: text(t, "kind"), Name: text(t, "name")},
				ExpireAfter:  karpenter.MustParseNillableDuration(rapid.SampledFrom([]string{"Never", "720h", "1h30m"}).Draw(t, "expireAfter")),
			},
		}}}
		if rapid.Bool().Draw(t, "with a grace period") {
			pool.Spec.Template.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Duration(rapid.IntRange(0, 3).Draw(t, "grace")) * time.Minute}
		}
		ours, err := fingerprint.NodePool(encoded(t, pool))
		require.NoError(t, err)
		var read karpenter.NodePool
		require.NoError(t, json.Unmarshal(encoded(t, pool), &read))
		require.Equal(t, read.Hash(), ours)
	})
}

func TestHashOfANodeClass_IsKarpenters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := aws.EC2NodeClassSpec{
			SubnetSelectorTerms:      []aws.SubnetSelectorTerm{{ID: text(t, "subnet")}},
			AMIFamily:                maybe(t, "amiFamily", rapid.SampledFrom([]string{aws.AMIFamilyCustom, aws.AMIFamilyAL2023})),
			UserData:                 maybe(t, "userData", words),
			Role:                     text(t, "role"),
			InstanceProfile:          maybe(t, "instanceProfile", words),
			Tags:                     texts(t, "tags"),
			AssociatePublicIPAddress: maybe(t, "associatePublicIPAddress", rapid.Bool()),
			IPPrefixCount:            maybe(t, "ipPrefixCount", rapid.Int32Range(0, 2)),
			DetailedMonitoring:       maybe(t, "detailedMonitoring", rapid.Bool()),
			InstanceStorePolicy:      maybe(t, "instanceStorePolicy", rapid.Just(aws.InstanceStorePolicyRAID0)),
			Context:                  maybe(t, "context", words),
		}
		if spec.AMIFamily == nil {
			alias := rapid.SampledFrom([]string{"al2@latest", "al2023@v1", "bottlerocket@latest", "windows2019@latest", "windows2022@latest", "windows2025@latest"})
			spec.AMISelectorTerms = []aws.AMISelectorTerm{{Alias: alias.Draw(t, "alias")}}
		}
		if rapid.Bool().Draw(t, "with a placement group") {
			spec.PlacementGroupSelector = &aws.PlacementGroupSelector{ID: maybe(t, "placement id", words), Name: maybe(t, "placement name", words)}
		}
		if rapid.Bool().Draw(t, "with kubelet") {
			spec.Kubelet = &aws.KubeletConfiguration{
				ClusterDNS: rapid.SliceOfN(words, 0, 3).Draw(t, "clusterDNS"), MaxPods: maybe(t, "maxPods", rapid.Int32Range(0, 9)),
				PodsPerCore: maybe(t, "podsPerCore", rapid.Int32Range(0, 9)), SystemReserved: texts(t, "systemReserved"), KubeReserved: texts(t, "kubeReserved"),
				EvictionHard: texts(t, "evictionHard"), EvictionSoft: texts(t, "evictionSoft"),
				EvictionSoftGracePeriod:     map[string]metav1.Duration{text(t, "signal"): {Duration: time.Minute}},
				EvictionMaxPodGracePeriod:   maybe(t, "evictionMaxPodGracePeriod", rapid.Int32Range(0, 9)),
				ImageGCHighThresholdPercent: maybe(t, "imageGCHigh", rapid.Int32Range(0, 99)),
				ImageGCLowThresholdPercent:  maybe(t, "imageGCLow", rapid.Int32Range(0, 99)),
				CPUCFSQuota:                 maybe(t, "cpuCFSQuota", rapid.Bool()),
			}
		}
		for range rapid.IntRange(0, 2).Draw(t, "volumes") {
			device := &aws.BlockDeviceMapping{DeviceName: maybe(t, "deviceName", words), RootVolume: rapid.Bool().Draw(t, "rootVolume")}
			if rapid.Bool().Draw(t, "with ebs") {
				device.EBS = &aws.BlockDevice{
					DeleteOnTermination: maybe(t, "deleteOnTermination", rapid.Bool()), Encrypted: maybe(t, "encrypted", rapid.Bool()),
					IOPS: maybe(t, "iops", rapid.Int64Range(0, 9)), KMSKeyID: maybe(t, "kmsKeyID", words), SnapshotID: maybe(t, "snapshotID", words),
					Throughput: maybe(t, "throughput", rapid.Int64Range(0, 9)), VolumeInitializationRate: maybe(t, "rate", rapid.Int32Range(0, 9)),
					VolumeType: maybe(t, "volumeType", words),
				}
				if size := maybe(t, "volumeSize", rapid.SampledFrom([]string{"20Gi", "20480Mi", "1Ti", "100G"})); size != nil {
					device.EBS.VolumeSize = new(resource.MustParse(*size))
				}
			}
			spec.BlockDeviceMappings = append(spec.BlockDeviceMappings, device)
		}
		for range rapid.IntRange(0, 2).Draw(t, "interfaces") {
			spec.NetworkInterfaces = append(spec.NetworkInterfaces, &aws.NetworkInterface{
				NetworkCardIndex: rapid.Int32Range(0, 3).Draw(t, "card"), DeviceIndex: rapid.Int32Range(0, 1).Draw(t, "device"),
				InterfaceType: rapid.SampledFrom([]aws.InterfaceType{aws.InterfaceTypeInterface, aws.InterfaceTypeEFAOnly}).Draw(t, "interface"),
			})
		}
		if rapid.Bool().Draw(t, "with metadata options") {
			spec.MetadataOptions = &aws.MetadataOptions{
				HTTPEndpoint: maybe(t, "httpEndpoint", words), HTTPProtocolIPv6: maybe(t, "httpProtocolIPv6", words),
				HTTPPutResponseHopLimit: maybe(t, "hops", rapid.Int64Range(0, 2)), HTTPTokens: maybe(t, "httpTokens", words),
			}
		}
		if rapid.Bool().Draw(t, "with connection tracking") {
			spec.ConnectionTracking = &aws.ConnectionTracking{
				TCPEstablishedTimeout: maybe(t, "tcp", rapid.Int32Range(0, 99)), UDPStreamTimeout: maybe(t, "stream", rapid.Int32Range(0, 99)),
				UDPTimeout: maybe(t, "udp", rapid.Int32Range(0, 99)),
			}
		}
		if rapid.Bool().Draw(t, "with cpu options") {
			spec.CPUOptions = &aws.CPUOptions{NestedVirtualization: maybe(t, "nestedVirtualization", words)}
		}
		object := encoded(t, aws.EC2NodeClass{Spec: spec})
		ours, err := fingerprint.NodeClass(object, []byte("authority"))
		require.NoError(t, err)
		var read aws.EC2NodeClass
		require.NoError(t, json.Unmarshal(object, &read))
		require.Equal(t, read.Hash(new(base64.StdEncoding.EncodeToString([]byte("authority")))), ours)
	})
}

var words = rapid.SampledFrom([]string{"", "a", "b", "c"})

func text(t *rapid.T, name string) string { return words.Draw(t, name) }

func texts(t *rapid.T, name string) map[string]string {
	return rapid.MapOfN(words, words, 0, 3).Draw(t, name)
}

func maybe[T any](t *rapid.T, name string, of *rapid.Generator[T]) *T {
	return rapid.Ptr(of, true).Draw(t, name)
}

func taints(t *rapid.T, name string) []corev1.Taint {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) corev1.Taint {
		return corev1.Taint{Key: text(t, "key"), Value: text(t, "value"), Effect: corev1.TaintEffectNoSchedule}
	}), 0, 3).Draw(t, name)
}

func encoded(t *rapid.T, v any) []byte {
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}
