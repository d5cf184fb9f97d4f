package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"treadle/shared/cluster"
)

const (
	ebsDriver     = "ebs.csi.aws.com"
	ebsInTree     = "kubernetes.io/aws-ebs"
	bindDone      = "pv.kubernetes.io/bind-completed"
	defaultSC     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultSC = "storageclass.beta.kubernetes.io/is-default-class"
)

func volumeClaimSource() source[cluster.VolumeClaim] {
	return source[cluster.VolumeClaim]{path: "/api/v1/persistentvolumeclaims", decode: decodeVolumeClaim}
}

func decodeVolumeClaim(raw []byte, in *interner) (meta, cluster.VolumeClaim, error) {
	var (
		spec   corev1.PersistentVolumeClaimSpec
		status corev1.PersistentVolumeClaimStatus
	)
	m, err := decodeCore(raw, in, map[int]part{2: {mask{3: nil, 5: nil}, spec.Unmarshal}, 3: {mask{1: nil}, status.Unmarshal}})
	_, bound := m.annotations[bindDone]
	return m, cluster.VolumeClaim{
		Namespace:    m.namespace,
		Name:         m.name,
		StorageClass: spec.StorageClassName,
		VolumeName:   spec.VolumeName,
		Phase:        string(status.Phase),
		BindComplete: bound,
		Deleting:     m.deletionUnix != 0,
	}, err
}

func volumeSource() source[cluster.Volume] {
	return source[cluster.Volume]{path: "/api/v1/persistentvolumes", decode: decodeVolume}
}

func decodeVolume(raw []byte, in *interner) (meta, cluster.Volume, error) {
	var spec corev1.PersistentVolumeSpec
	m, err := decodeCore(raw, in, map[int]part{2: {mask{2: nil, 9: nil}, spec.Unmarshal}})
	v := cluster.Volume{
		Name:     m.name,
		Local:    spec.Local != nil || spec.HostPath != nil,
		Deleting: m.deletionUnix != 0,
	}
	switch {
	case spec.CSI != nil:
		v.Driver = spec.CSI.Driver
	case spec.AWSElasticBlockStore != nil:
		v.Driver = ebsDriver
	}
	switch {
	case spec.NodeAffinity != nil && spec.NodeAffinity.Required != nil:
		v.Terms = nodeTerms(spec.NodeAffinity.Required.NodeSelectorTerms)
	default:
		v.Terms = labelTerms(m.labels)
	}
	return m, v, err
}

// labelTerms reads where a volume is from its labels, as in-tree drivers noted it; several zones are joined by "__".
func labelTerms(labels map[string]string) []cluster.NodeTerm {
	var term cluster.NodeTerm
	for _, key := range sortedKeys(labels) {
		if to := stableKey(key); to == cluster.LabelZone || to == cluster.LabelRegion {
			term.Expressions = append(term.Expressions, cluster.Expression{
				Key: to, Operator: cluster.In, Values: strings.Split(labels[key], "__"),
			})
		}
	}
	if len(term.Expressions) == 0 {
		return nil
	}
	return []cluster.NodeTerm{term}
}

func storageClassSource() source[cluster.StorageClass] {
	return source[cluster.StorageClass]{path: "/apis/storage.k8s.io/v1/storageclasses", decode: decodeStorageClass}
}

func decodeStorageClass(raw []byte, in *interner) (meta, cluster.StorageClass, error) {
	var class storagev1.StorageClass
	m, err := decodeCore(raw, in, nil)
	if err == nil {
		err = class.Unmarshal(raw)
	}
	s := cluster.StorageClass{
		Name:        m.name,
		Provisioner: class.Provisioner,
		WaitForPod:  class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer,
		Default:     m.annotations[defaultSC] == "true" || m.annotations[betaDefaultSC] == "true",
		CreatedUnix: m.createdUnix,
	}
	if s.Provisioner == ebsInTree {
		s.Provisioner = ebsDriver
	}
	for _, t := range class.AllowedTopologies {
		var term cluster.NodeTerm
		for _, e := range t.MatchLabelExpressions {
			term.Expressions = append(term.Expressions, cluster.Expression{
				Key: stableKey(e.Key), Operator: cluster.In, Values: e.Values,
			})
		}
		s.Topologies = append(s.Topologies, term)
	}
	return m, s, err
}
