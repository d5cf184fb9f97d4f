package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"treadle/shared/cluster"
	"treadle/shared/nodeclass"
	"treadle/shared/plan"
)

// shelf holds profiles and templates, the latter by when they were made.
type shelf struct {
	profiles  []string
	templates map[string]time.Time
	err       error
	looked    int
	deleted   []string
}

func (s *shelf) Collect(_ context.Context, _ nodeclass.Facts, doomed func(string) bool) error {
	s.looked++
	for _, name := range s.profiles {
		if doomed(name) {
			s.deleted = append(s.deleted, name)
		}
	}
	return s.err
}

func (s *shelf) Prune(_ context.Context, _ string, madeBefore time.Time, used func(string) bool) error {
	for name, made := range s.templates {
		if made.Before(madeBefore) && !used(name) {
			s.deleted = append(s.deleted, name)
		}
	}
	return nil
}

func TestTidy_DeletesWhatNothingUses(t *testing.T) {
	t.Parallel()
	at := time.Unix(now, 0)
	s := &shelf{
		profiles:  []string{"of-class", "of-claim", "left"},
		templates: map[string]time.Time{"old": at.Add(-48 * time.Hour), "old-and-used": at.Add(-48 * time.Hour), "young": at.Add(-time.Hour)},
	}
	b := newBench(0)
	b.Tidier, b.Now = s, func() time.Time { return at }
	site, err := b.Open(t.Context(), "demo")
	require.NoError(t, err)
	snap := &cluster.Snapshot{
		NodeClasses: []cluster.NodeClass{withRole("of-class")},
		NodeClaims: []cluster.NodeClaim{{Annotations: map[string]string{
			cluster.AnnotationInstanceProfile: "of-claim",
			cluster.AnnotationLaunch:          plan.Launch{Group: "g", Configs: []plan.LaunchConfig{{Template: "old-and-used"}}}.Annotation(),
		}}},
	}
	b.tidy(t.Context(), site, snap)
	require.Equal(t, []string{"old"}, s.deleted, "a profile goes when it was unused for long")
	b.tidy(t.Context(), site, snap)
	require.Equal(t, 1, s.looked, "not at every look")

	at = at.Add(31 * time.Minute)
	s.err = errors.New("IAM is away")
	b.tidy(t.Context(), site, snap)
	require.NotContains(t, s.deleted, "left")
	at, s.err = at.Add(31*time.Minute), nil
	b.tidy(t.Context(), site, snap)
	require.Contains(t, s.deleted, "left")
	require.NotContains(t, s.deleted, "of-class")
	require.NotContains(t, s.deleted, "of-claim")
}

func withRole(profile string) cluster.NodeClass {
	return cluster.NodeClass{Spec: cluster.NodeClassSpec{Role: "nodes"}, Status: cluster.NodeClassStatus{InstanceProfile: profile}}
}

func TestTidy_AsksNothingOfIAMWhereNoClassHasARole(t *testing.T) {
	t.Parallel()
	s := &shelf{profiles: []string{"p"}}
	b := newBench(0)
	b.Tidier = s
	site, err := b.Open(t.Context(), "demo")
	require.NoError(t, err)
	b.tidy(t.Context(), site, &cluster.Snapshot{NodeClasses: []cluster.NodeClass{{Spec: cluster.NodeClassSpec{InstanceProfile: "p"}}}})
	require.Zero(t, s.looked)
}

func TestTidy_AProfileThatIsUsedAgainStartsAnew(t *testing.T) {
	t.Parallel()
	at := time.Unix(now, 0)
	s := &shelf{profiles: []string{"p"}}
	b := newBench(0)
	b.Tidier, b.Now = s, func() time.Time { return at }
	site, err := b.Open(t.Context(), "demo")
	require.NoError(t, err)
	used := &cluster.Snapshot{NodeClasses: []cluster.NodeClass{withRole("p")}}
	unused := &cluster.Snapshot{NodeClasses: []cluster.NodeClass{withRole("another")}}
	for _, snap := range []*cluster.Snapshot{unused, used, unused, unused} {
		b.tidy(t.Context(), site, snap)
		at = at.Add(31 * time.Minute)
	}
	require.Empty(t, s.deleted)
	b.tidy(t.Context(), site, unused)
	require.Equal(t, []string{"p"}, s.deleted)
}
