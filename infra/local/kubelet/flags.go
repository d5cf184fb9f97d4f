package kubelet

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// applyFlags reads kubelet's command line, each flag as --name=value or as two words. A flag wins
// over the configuration file. Flags that do not decide what the node offers are passed over.
func (b *bootstrap) applyFlags(words []string) error {
	for i := 0; i < len(words); i++ {
		name, value, joined := strings.Cut(words[i], "=")
		if !strings.HasPrefix(name, "--") {
			continue
		}
		if !joined && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			i++
			value = words[i]
		}
		if err := b.applyFlag(name, strings.Trim(value, `"'`)); err != nil {
			return fmt.Errorf("read kubelet flag %s: %w", name, err)
		}
	}
	return nil
}

func (b *bootstrap) applyFlag(name, value string) error {
	var err error
	switch name {
	case "--node-labels":
		var labels map[string]string
		if labels, err = pairs(value, "="); err != nil {
			return err
		}
		if b.labels == nil {
			b.labels = map[string]string{}
		}
		maps.Copy(b.labels, labels)
	case "--register-with-taints":
		b.taints, err = parseTaints(value)
	case "--max-pods":
		b.maxPods, err = strconv.ParseInt(value, 10, 32)
	case "--pods-per-core":
		b.podsPerCore, err = strconv.ParseInt(value, 10, 32)
	case "--kube-reserved":
		b.kubeReserved, err = pairs(value, "=")
		b.onlyReserved = true
	case "--system-reserved":
		b.systemReserved, err = pairs(value, "=")
	case "--eviction-hard":
		b.evictionHard, err = pairs(value, "<")
		b.onlyEviction = true
	}
	return err
}

func pairs(list, separator string) (map[string]string, error) {
	m := map[string]string{}
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		k, v, ok := strings.Cut(item, separator)
		if !ok || k == "" {
			return nil, fmt.Errorf("%q is not key%svalue", item, separator)
		}
		m[k] = v
	}
	return m, nil
}

// parseTaints reads key=value:effect and key:effect.
func parseTaints(list string) ([]corev1.Taint, error) {
	var taints []corev1.Taint
	for item := range strings.SplitSeq(list, ",") {
		if item == "" {
			continue
		}
		at := strings.LastIndexByte(item, ':')
		if at < 1 {
			return nil, fmt.Errorf("taint %q has no effect", item)
		}
		key, value, _ := strings.Cut(item[:at], "=")
		taint, err := newTaint(key, value, item[at+1:])
		if err != nil {
			return nil, err
		}
		taints = append(taints, taint)
	}
	return taints, nil
}

func newTaint(key, value, effect string) (corev1.Taint, error) {
	switch e := corev1.TaintEffect(effect); e {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		return corev1.Taint{Key: key, Value: value, Effect: e}, nil
	}
	return corev1.Taint{}, fmt.Errorf("taint %s has unknown effect %q", key, effect)
}
