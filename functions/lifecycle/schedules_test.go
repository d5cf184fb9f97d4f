package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/schedule"
)

// timetable is Scheduler in memory.
type timetable struct {
	sync.Mutex
	at    map[string]int64 // by UID
	calls int
	err   error
}

func (s *timetable) Create(_ context.Context, e schedule.Expiry, atUnix int64) error {
	s.Lock()
	defer s.Unlock()
	s.calls++
	if s.err == nil {
		s.at[e.NodeClaimUID] = atUnix
	}
	return s.err
}

func (s *timetable) Delete(_ context.Context, _, uid string) error {
	s.Lock()
	defer s.Unlock()
	s.calls++
	if s.err == nil {
		delete(s.at, uid)
	}
	return s.err
}

func (s *timetable) List(context.Context, string) ([]string, error) {
	s.calls++
	return slices.Collect(maps.Keys(s.at)), s.err
}

func TestSchedule_KeepsOneForEachClaimThatExpires(t *testing.T) {
	t.Parallel()
	b := newBench()
	table := &timetable{at: map[string]int64{"forgotten by a crash": 1}}
	b.Schedules = table
	mortal, _ := b.world.AddMachine("mortal", "general")
	immortal, _ := b.world.AddMachine("immortal", "general")
	leaving, _ := b.world.AddMachine("leaving", "general")
	mortal.ExpireAfterSeconds, leaving.ExpireAfterSeconds, leaving.DeletionUnix = 3600, 3600, now
	b.world.Pools[0].ConsolidateAfterSeconds = nil
	site, err := b.Open(t.Context(), "demo")
	require.NoError(t, err)
	look := func() {
		snap := b.world.Snapshot(b.world.NowUnix())
		b.schedule(t.Context(), site, &snap)
	}
	look()
	require.Equal(t, map[string]int64{mortal.UID: now + 3600}, table.at)
	require.Equal(t, 3, table.calls, "list, create, delete")
	look()
	require.Equal(t, 3, table.calls, "what is known is not asked again")

	delete(table.at, mortal.UID) // by hand
	b.world.Advance(601)
	look()
	require.Contains(t, table.at, mortal.UID)

	delete(b.world.Claims, "mortal")
	look()
	require.Empty(t, table.at, "the schedule goes with its claim")
	before := table.calls
	b.world.Advance(3600)
	look()
	require.Equal(t, before, table.calls, "nobody expires, nobody is asked")
	require.Zero(t, immortal.DeletionUnix)
}

func TestLifecycle_ExpiresAlsoWhereSchedulerIsAway(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.Schedules = &timetable{err: errors.New("away")}
	claim, node := b.world.AddMachine("c", "general")
	b.world.AddPod("p", node.Name, cluster.PodSpec{})
	claim.ExpireAfterSeconds = 600
	require.NoError(t, b.run(t))
	require.Zero(t, claim.DeletionUnix)
	b.world.Advance(600)
	require.NoError(t, b.run(t))
	require.NotZero(t, claim.DeletionUnix)
	require.Equal(t, "Expired", b.world.Events[0].Reason)
}
