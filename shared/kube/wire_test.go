package kube

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func FuzzReadProtoList_NeverPanics(f *testing.F) {
	list := corev1.PodList{Items: []corev1.Pod{full()}}
	list.ResourceVersion = "5"
	whole := envelope(f, &list)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte("k8s\x00\x12\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		source, in := podSource(), newInterner()
		_, err := readProtoList(bytes.NewReader(body), func(raw []byte) error {
			_, _, err := source.decode(raw, in)
			return err
		})
		if bytes.Equal(body, whole) {
			require.NoError(t, err)
		}
		_, _ = readJSONList(bytes.NewReader(body), func([]byte) error { return nil })
		_, _ = readProtoEvent(bytes.NewReader(body))
	})
}

func TestReadProtoList_SaysWhenTheAnswerWasCutOff(t *testing.T) {
	t.Parallel()
	list := corev1.PodList{Items: []corev1.Pod{full(), full()}}
	list.ResourceVersion, list.RemainingItemCount = "5", new(int64(7))
	whole := envelope(t, &list)
	n := 0
	got, err := readProtoList(bytes.NewReader(whole), func([]byte) error { n++; return nil })
	require.NoError(t, err)
	require.Equal(t, listMeta{version: 5, remaining: 7}, got)
	require.Equal(t, 2, n)
	// The envelope ends with fields that say nothing, so a cut there goes unnoticed and loses nothing.
	for cut := 1; cut < len(whole)-8; cut += 7 {
		_, err := readProtoList(bytes.NewReader(whole[:cut]), func([]byte) error { return nil })
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut at %d of %d", cut, len(whole))
	}
}

func TestReadJSONList_SaysWhenTheAnswerWasCutOff(t *testing.T) {
	t.Parallel()
	const whole = `{"kind":"XList","metadata":{"resourceVersion":"5","remainingItemCount":3},"items":[{"a":1},{"b":[2]}]}`
	var items []string
	got, err := readJSONList(bytes.NewReader([]byte(whole)), func(raw []byte) error { items = append(items, string(raw)); return nil })
	require.NoError(t, err)
	require.Equal(t, listMeta{version: 5, remaining: 3}, got)
	require.Equal(t, []string{`{"a":1}`, `{"b":[2]}`}, items)
	for cut := range len(whole) {
		_, err := readJSONList(bytes.NewReader([]byte(whole[:cut])), func([]byte) error { return nil })
		require.Error(t, err, whole[:cut])
	}
}

func TestMask_KeepsWhatItNames(t *testing.T) {
	t.Parallel()
	spec := full().Spec
	pruned, err := mask{1: volumeMask, 19: nil}.prune(nil, marshal(t, &spec))
	require.NoError(t, err)
	var got corev1.PodSpec
	require.NoError(t, got.Unmarshal(pruned))
	require.Equal(t, corev1.PodSpec{SchedulerName: "default-scheduler", Volumes: spec.Volumes[1:]}, got)
}
