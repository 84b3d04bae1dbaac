// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
)

// maxNamed bounds how many clusters a message names.
const maxNamed = 20

// hubState is the hub's state as Envs show it.
type hubState string

const (
	hubPending     hubState = "Pending" // connecting, or briefly away: Envs show nothing yet
	hubInSync      hubState = "InSync"
	hubUnreachable hubState = "Unreachable"
)

// facts are the inputs of a decision about one Env.
type facts struct {
	local string // ClusterID of this cluster
	env   *v1alpha1.SandboxEnv
	view  view
	known map[string]struct{}
	heard map[string]struct{}
	// registered are the clusters that the hub has registered, or nil if unknown.
	registered map[string]struct{}
	// gaps are the gaps of the previous decision.
	gaps map[gap]time.Time
	hub  hubState
	// cause is why no hub is connected, or "" if unknown.
	cause string
	now   time.Time
}

// verdict is why an Env is written or not.
type verdict string

const (
	upToDate          verdict = "UpToDate"
	leaving           verdict = "Leaving" // the Env is being deleted
	segmentsDiffer    verdict = "SegmentsDiffer"
	conditionsDiffers verdict = "ConditionDiffers"
)

// decision has all fields that atoll-sync should own in an Env's status.
type decision struct {
	verdict   verdict
	entries   []entry
	condition *metav1.Condition // nil if there is none yet
	// gaps are passed to the next decision, which is due after again at the latest. If again is 0, it is due after the next event.
	gaps  map[gap]time.Time
	again time.Duration
}

func (d decision) write() bool { return d.verdict == segmentsDiffer || d.verdict == conditionsDiffers }

// decide returns what an Env should show, and whether that takes a write.
func decide(f facts) decision {
	if f.env.DeletionTimestamp != nil {
		return decision{verdict: leaving}
	}
	present := presentEntries(f.env, f.local)
	wanted, stale := wantedEntries(f, present)
	found, differing := gapsOf(f), differences(f.env, wanted)
	wanted, collapsed := fit(wanted)
	d := decision{
		verdict: upToDate, entries: wanted, condition: condition(f, shownState{wanted, stale, collapsed, found, differing}),
		gaps: found.since, again: found.next,
	}
	switch was := meta.FindStatusCondition(f.env.Status.Conditions, v1alpha1.SandboxEnvConditionFederated); {
	case !slices.EqualFunc(present, wanted, entry.same):
		d.verdict = segmentsDiffer
	case d.condition != nil && (was == nil || was.Status != d.condition.Status || was.Reason != d.condition.Reason ||
		was.Message != d.condition.Message):
		d.verdict = conditionsDiffers
	}
	return d
}

// presentEntries returns the foreign segments that the Env shows now, by ClusterID.
func presentEntries(env *v1alpha1.SandboxEnv, local string) []entry {
	var out []entry
	for i := range env.Status.Clusters {
		if e, ok := entryOfStatus(&env.Status.Clusters[i], local); ok {
			out = append(out, e)
		}
	}
	sortEntries(out)
	return out
}

// wantedEntries returns the hub's segments, and the shown segments of clusters that the hub has not reported (I5).
func wantedEntries(f facts, present []entry) (out []entry, stale []string) {
	for id, s := range f.view {
		if s == nil {
			continue
		}
		e, ok := newEntry(id, f.local, s.members, s.receivedAt)
		if !ok {
			continue
		}
		out = append(out, e)
		if _, heard := f.heard[id]; s.stale || !heard {
			stale = append(stale, id)
		}
	}
	for _, e := range present {
		_, told := f.view[e.ClusterID]
		_, known := f.known[e.ClusterID]
		if told || known {
			continue
		}
		e.IsLocal = false
		out = append(out, e)
		stale = append(stale, e.ClusterID)
	}
	sortEntries(out)
	slices.Sort(stale)
	return out, stale
}

func sortEntries(entries []entry) {
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.ClusterID, b.ClusterID) })
}

// shownState is the state that the condition Federated describes.
type shownState struct {
	entries   []entry
	stale     []string
	collapsed bool
	gaps      gaps
	differing []string // see differences
}

// condition returns Federated with the first reason that applies: TooLarge, HubUnreachable, ClustersStale, ClusterMissing, EnvMissing,
// InSync. The message also names the gaps that are not the reason. Differences of spec.clusters are no fault, because only the owner's
// segment counts.
func condition(f facts, s shownState) *metav1.Condition {
	was := meta.FindStatusCondition(f.env.Status.Conditions, v1alpha1.SandboxEnvConditionFederated)
	out := &metav1.Condition{Type: v1alpha1.SandboxEnvConditionFederated, Status: metav1.ConditionFalse}
	names, gaps := clusterNames(s.entries), s.gaps.String()
	switch {
	case s.collapsed:
		out.Reason = string(v1alpha1.ReasonTooLarge)
		out.Message = join("segments are shown as totals, their members do not fit: "+names, gaps)
	case f.hub == hubUnreachable:
		out.Reason = string(v1alpha1.ReasonHubUnreachable)
		out.Message = "no hub is connected"
		if f.cause != "" {
			out.Message += ": " + f.cause
		}
		out.Message += "; shown as last heard: " + names
	case f.hub == hubPending:
		return was.DeepCopy()
	case len(s.stale) > 0:
		out.Reason = string(v1alpha1.ReasonClustersStale)
		out.Message = join("the hub has not heard lately from: "+list(s.stale), gaps)
	case gaps != "":
		out.Reason, out.Message = string(s.gaps.reason()), gaps
	default:
		out.Status = metav1.ConditionTrue
		out.Reason = string(v1alpha1.ReasonInSync)
		out.Message = "other clusters: " + names
		if len(s.differing) > 0 {
			out.Message += "; spec.clusters here is not what counts: " + list(s.differing)
		}
	}
	out.LastTransitionTime = metav1.NewTime(f.now)
	if was != nil && was.Status == out.Status {
		out.LastTransitionTime = was.LastTransitionTime
	}
	return out
}

func join(first, rest string) string { return strings.TrimSuffix(first+"; "+rest, "; ") }

func clusterNames(entries []entry) string {
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		ids = append(ids, e.ClusterID)
	}
	return list(ids)
}

func list(ids []string) string { return cmp.Or(clip.Names(ids, maxNamed), "none") }

// fit collapses entries that are too large for an Env: first to one total per scaling group, then to one total per cluster.
func fit(entries []entry) (fitting []entry, collapsed bool) {
	if sizeOf(entries) <= maxSegments {
		return entries, false
	}
	byGroup := collapse(entries, func(m *member) string { return m.ScalingGroup })
	if sizeOf(byGroup) <= maxSegments {
		return byGroup, true
	}
	return collapse(entries, func(*member) string { return "" }), true
}

// collapse sums each entry's members by the result of group.
func collapse(entries []entry, group func(*member) string) []entry {
	out := make([]entry, 0, len(entries))
	for _, e := range entries {
		totals := map[string]*member{}
		for i := range e.ObservedMembers {
			m := &e.ObservedMembers[i]
			name := totalPrefix + group(m)
			if totals[name] == nil {
				totals[name] = &member{Name: name, ScalingGroup: group(m)}
			}
			totals[name].add(m)
		}
		e.ObservedMembers = nil
		for _, name := range slices.Sorted(maps.Keys(totals)) {
			e.ObservedMembers = append(e.ObservedMembers, *totals[name])
		}
		out = append(out, e)
	}
	return out
}
