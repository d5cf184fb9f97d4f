package kubetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"treadle/shared/cluster"
	"treadle/shared/kube"
)

func TestMirror_SeesNothingOfAKindAndEverythingOfAnother(t *testing.T) {
	t.Parallel()
	c := client(t)
	s := snapshot(t, c, kube.AllKinds)
	require.Equal(t, "demo", s.Cluster)
	require.Contains(t, s.Namespaces, "kube-system")
	require.Equal(t, "kube-system", s.Namespaces["kube-system"]["kubernetes.io/metadata.name"])
}

func indexOf(s cluster.Snapshot, name string) int {
	return slices.IndexFunc(s.Pods, func(p cluster.Pod) bool { return p.Name == name })
}

func TestMirror_FollowsPausesAndResumes(t *testing.T) {
	t.Parallel()
	c, up := client(t), upstream(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	m := kube.NewMirror(c, kube.Pods|kube.NodePools)
	require.NoError(t, m.Sync(ctx))
	until := func(done func(cluster.Snapshot) bool) {
		t.Helper()
		for !done(m.Snapshot(0)) {
			require.NoError(t, m.Await(ctx))
		}
	}
	_, err := up.CoreV1().Pods("default").Create(ctx, webPod("followed", nil), metav1.CreateOptions{})
	require.NoError(t, err)
	until(func(s cluster.Snapshot) bool { return indexOf(s, "followed") >= 0 })
	m.Pause()
	require.NoError(t, up.CoreV1().Pods("default").Delete(ctx, "followed", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	require.NoError(t, c.Apply(ctx, fmt.Appendf(nil, quickStart, "followed")))
	until(func(s cluster.Snapshot) bool {
		return indexOf(s, "followed") < 0 && slices.ContainsFunc(s.NodePools, func(p cluster.NodePool) bool { return p.Name == "followed" })
	})
	m.Pause()
}

func TestMirror_ResumesALargeKindAndIsComplete(t *testing.T) {
	t.Parallel()
	c, up, ctx := client(t), upstream(t), t.Context()
	create := func(from, to int) {
		var all sync.WaitGroup
		errs := make(chan error, to-from)
		for i := from; i < to; i++ {
			all.Go(func() {
				_, err := up.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("large-%04d", i)}}, metav1.CreateOptions{})
				errs <- err
			})
		}
		all.Wait()
		for range to - from {
			require.NoError(t, <-errs)
		}
	}
	create(0, 700)
	m := kube.NewMirror(c, kube.Nodes)
	require.NoError(t, m.Sync(ctx))
	for n := 1000; n < 4000; n += 1000 {
		m.Pause()
		create(n, n+50)
		require.NoError(t, up.CoreV1().Nodes().Delete(ctx, fmt.Sprintf("large-%04d", n), metav1.DeleteOptions{}))
		_, err := up.CoreV1().Nodes().Patch(ctx, fmt.Sprintf("large-%04d", n+1), "application/merge-patch+json", []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, m.Sync(ctx))
		t.Logf("resumed 52 events in %s", time.Since(began))
		fresh := kube.NewMirror(c, kube.Nodes)
		require.NoError(t, fresh.Sync(ctx))
		require.Equal(t, large(fresh.Snapshot(0)), large(m.Snapshot(0)))
	}
	began := time.Now()
	require.NoError(t, m.Sync(ctx))
	t.Logf("resumed nothing in %s", time.Since(began))
	m.Pause()
}

// large returns the nodes of this test; other tests make some of their own.
func large(s cluster.Snapshot) []cluster.Node {
	return slices.DeleteFunc(slices.Clone(s.Nodes), func(n cluster.Node) bool { return len(n.Name) < 6 || n.Name[:6] != "large-" })
}
