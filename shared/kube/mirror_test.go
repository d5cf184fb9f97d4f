package kube

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"treadle/shared/cluster"
)

func podMirror(t *testing.T) (*podServer, *api, *Mirror) {
	t.Helper()
	a := newAPI(t)
	s := &podServer{t: t, frames: make(chan []byte, 16), ended: make(chan struct{}, 16)}
	a.on("GET", "/api/v1/pods", s.ServeHTTP)
	m := NewMirror(a.client(), Pods|NodePools)
	t.Cleanup(m.Pause)
	return s, a, m
}

func names(s cluster.Snapshot) []string {
	var out []string
	for _, p := range s.Pods {
		out = append(out, p.Name)
	}
	return out
}

func many(n int) []corev1.Pod {
	var out []corev1.Pod
	for i := range n {
		out = append(out, pod(fmt.Sprintf("p%04d", i), 10))
	}
	return out
}

func TestMirror_ListsSmallKindsAnewAndSortsThem(t *testing.T) {
	t.Parallel()
	s, _, m := podMirror(t)
	s.set(11, pod("b", 5), pod("a", 7))
	require.NoError(t, m.Sync(t.Context()))
	snap := m.Snapshot(99)
	require.Equal(t, []string{"a", "b"}, names(snap))
	require.Equal(t, int64(99), snap.NowUnix)
	require.Equal(t, "demo", snap.Cluster)
	require.Same(t, snap.Pods[0].Spec, snap.Pods[1].Spec, "equal pods share one spec")

	s.set(12, pod("b", 5))
	require.NoError(t, m.Sync(t.Context()))
	require.Equal(t, []string{"b"}, names(m.Snapshot(0)))
	require.Equal(t, []string{"a", "b"}, names(snap), "an old snapshot does not change")
}

func TestMirror_TakesAKindThatTheAPILacksForEmpty(t *testing.T) {
	t.Parallel()
	s, _, m := podMirror(t)
	s.set(3, pod("a", 2))
	require.NoError(t, m.Sync(t.Context()))
	require.Empty(t, m.Snapshot(0).NodePools)
}

func TestMirror_AwaitWakesForChangesOfNounsOnly(t *testing.T) {
	t.Parallel()
	s, _, m := podMirror(t)
	s.set(10, pod("a", 9))
	require.NoError(t, m.Sync(t.Context()))

	old, same, moved := pod("a", 8), pod("a", 11, func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" }), pod("a", 12, func(p *corev1.Pod) { p.Spec.NodeName = "n1" })
	bookmark := corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "20"}}
	gone, late := pod("a", 21), pod("b", 22)
	s.frames <- frame(t, "MODIFIED", &old)
	s.frames <- frame(t, "MODIFIED", &same)
	s.frames <- frame(t, "MODIFIED", &moved)
	require.NoError(t, m.Await(t.Context()))
	require.Equal(t, cluster.NodeName("n1"), m.Snapshot(0).Pods[0].NodeName)

	s.frames <- frame(t, "BOOKMARK", &bookmark)
	s.frames <- frame(t, "DELETED", &gone)
	require.NoError(t, m.Await(t.Context()))
	require.Empty(t, m.Snapshot(0).Pods)

	m.Pause()
	<-s.ended
	s.frames <- frame(t, "ADDED", &late)
	require.NoError(t, m.Await(t.Context()))
	require.Equal(t, []string{"b"}, names(m.Snapshot(0)))
	require.Equal(t, []string{"10", "21"}, s.resumed, "a paused mirror resumes where it stopped")

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, m.Await(ctx), context.DeadlineExceeded)
}

func TestMirror_AwaitNeedsSync(t *testing.T) {
	t.Parallel()
	_, _, m := podMirror(t)
	require.ErrorContains(t, m.Await(t.Context()), "not synced yet")
}

func TestMirror_AwaitListsWhenItsVersionIsTooOld(t *testing.T) {
	t.Parallel()
	s, _, m := podMirror(t)
	s.set(10, pod("a", 9))
	require.NoError(t, m.Sync(t.Context()))
	s.set(1000, pod("b", 900))
	gone := &metav1.Status{Code: 410, Reason: "Expired"}
	s.frames <- frame(t, "ERROR", gone)
	require.NoError(t, m.Await(t.Context()))
	require.Equal(t, []string{"b"}, names(m.Snapshot(0)))
}

func TestMirror_AwaitFollowsAStreamThatTheServerEnds(t *testing.T) {
	t.Parallel()
	s, _, m := podMirror(t)
	s.set(10, pod("a", 9))
	require.NoError(t, m.Sync(t.Context()))
	first := s.frames
	s.frames = make(chan []byte, 1)
	later := pod("c", 12)
	s.frames <- frame(t, "ADDED", &later)
	close(first)
	require.NoError(t, m.Await(t.Context()))
	require.Equal(t, []string{"a", "c"}, names(m.Snapshot(0)))
}

func TestMirror_ResumesLargeKinds(t *testing.T) {
	t.Parallel()
	added, moved, gone := pod("q", 2001), pod("p0001", 2002, func(p *corev1.Pod) { p.Spec.NodeName = "n" }), pod("p0002", 2003)
	bookmark := corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "2100"}}
	cases := map[string]struct {
		frames func(t *testing.T) [][]byte
		size   int // what the server counts
		lists  int // full LISTs after the first
	}{
		"an event as new as the LIST completes the copy": {
			func(t *testing.T) [][]byte {
				t.Helper()
				return [][]byte{frame(t, "ADDED", &added), frame(t, "MODIFIED", &moved), frame(t, "DELETED", &gone), frame(t, "BOOKMARK", &bookmark)}
			}, 600, 0,
		},
		"silence at the right size completes the copy": {
			func(t *testing.T) [][]byte {
				t.Helper()
				return [][]byte{frame(t, "ADDED", &added), frame(t, "MODIFIED", &moved), frame(t, "DELETED", &gone)}
			}, 600, 0,
		},
		"a version that is too old leads to a LIST": {
			func(t *testing.T) [][]byte {
				t.Helper()
				return [][]byte{frame(t, "ERROR", &metav1.Status{Code: 410, Reason: "Expired"})}
			}, 600, 1,
		},
		"silence at the wrong size leads to a LIST": {
			func(t *testing.T) [][]byte { t.Helper(); return [][]byte{frame(t, "ADDED", &added)} }, 600, 1,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, a, m := podMirror(t)
			s.set(1000, many(600)...)
			require.NoError(t, m.Sync(t.Context()))
			after := append(many(600), added)
			after[1] = moved
			after = append(after[:2], after[3:]...)
			s.set(2050, after[:c.size]...)
			for _, f := range c.frames(t) {
				s.frames <- f
			}
			require.NoError(t, m.Sync(t.Context()))
			snap := m.Snapshot(0)
			require.Len(t, snap.Pods, 600)
			require.Equal(t, cluster.NodeName("n"), snap.Pods[1].NodeName)
			require.Equal(t, "p0003", snap.Pods[2].Name)
			require.Equal(t, 1+c.lists, a.count("GET", "/api/v1/pods", "")-a.count("GET", "/api/v1/pods", "limit=1")-a.count("GET", "/api/v1/pods", "watch=1"))
		})
	}
}

func TestMirror_AsksNothingMoreWhenNothingWasWritten(t *testing.T) {
	t.Parallel()
	s, a, m := podMirror(t)
	s.set(1000, many(600)...)
	require.NoError(t, m.Sync(t.Context()))
	require.NoError(t, m.Sync(t.Context()))
	require.Zero(t, a.count("GET", "/api/v1/pods", "watch=1"))
}

func TestMirror_KeepsItsCopyWhenTheServerFails(t *testing.T) {
	t.Parallel()
	s, a, m := podMirror(t)
	s.set(10, pod("a", 9))
	require.NoError(t, m.Sync(t.Context()))
	a.on("GET", "/api/v1/pods", answer("k8s\x00\x12\xff\xff\x03half"))
	require.Error(t, m.Sync(t.Context()))
	require.Equal(t, []string{"a"}, names(m.Snapshot(0)))
}

func TestMirror_ShowsCustomObjectsThatCannotBeUnderstood(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.on("GET", "/apis/karpenter.sh/v1/nodepools", answer(`{"kind":"NodePoolList","items":[
		{"metadata":{"name":"bad","uid":"1"},"spec":{"limits":{"cpu":"many"}}},
		{"metadata":{"name":"good","uid":"2"},"spec":{"limits":{"cpu":"1500m","memory":1024,"nodes":3}}},
		{"metadata":{"name":"odd","uid":"3"},"spec":{"weight":"heavy"}}],"metadata":{"resourceVersion":"7"}}`))
	m := NewMirror(a.client(), NodePools)
	require.NoError(t, m.Sync(t.Context()))
	pools := m.Snapshot(0).NodePools
	require.Len(t, pools, 3)
	require.Equal(t, `spec.limits.cpu: "many" is no quantity`, pools[0].Invalid)
	require.Empty(t, pools[1].Invalid)
	require.Equal(t, map[string]int64{"cpu": 1500, "memory": 1024, "nodes": 3}, pools[1].Limits)
	require.NotEmpty(t, pools[2].Invalid)
}
