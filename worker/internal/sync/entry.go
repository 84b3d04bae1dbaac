// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/segment"
)

const (
	// maxSegments bounds the size of an Env's foreign segments.
	maxSegments = 128 << 10
	// totalPrefix is the prefix of the name of a total. No pool can have such a name.
	totalPrefix = "total:"
)

// entry is one foreign segment in its written form. Its fields are always present, because an apply that leaves out a zero would not own
// it.
type entry struct {
	ClusterID        string       `json:"clusterID"`
	IsLocal          bool         `json:"isLocal"`
	ObservedMembers  []member     `json:"observedMembers"`
	LastSnapshotTime *metav1.Time `json:"lastSnapshotTime,omitempty"`
}

type member struct {
	Name            string                       `json:"name"`
	InstanceType    string                       `json:"instanceType,omitempty"`
	Multiplier      int32                        `json:"multiplier,omitempty"`
	ScalingGroup    string                       `json:"scalingGroup,omitempty"`
	Priority        int32                        `json:"priority,omitempty"`
	State           v1alpha1.ObservedMemberState `json:"state,omitempty"`
	IdleCount       int32                        `json:"idleCount"`
	RunningCount    int32                        `json:"runningCount"`
	DesiredReplicas int32                        `json:"desiredReplicas"`
	CurrentReplicas int32                        `json:"currentReplicas"`
	PendingRequests int32                        `json:"pendingRequests"`
}

// newEntry returns an entry for a segment of the hub. It returns none for the local cluster (I3).
func newEntry(id, local string, members []segment.Member, received time.Time) (entry, bool) {
	if id == local || id == "" {
		return entry{}, false
	}
	at := metav1.NewTime(received)
	e := entry{ClusterID: id, ObservedMembers: make([]member, 0, len(members)), LastSnapshotTime: &at}
	for i := range members {
		m, shape := &members[i], members[i].Shape.Get()
		e.ObservedMembers = append(e.ObservedMembers, member{
			Name: m.Name, InstanceType: shape.InstanceType, Multiplier: shape.Multiplier, State: stateOf(m.State),
			IdleCount: m.Idle, RunningCount: m.Running, DesiredReplicas: m.Desired, CurrentReplicas: m.Current,
			PendingRequests: m.Pending, ScalingGroup: shape.ScalingGroup, Priority: shape.Priority,
		})
	}
	slices.SortFunc(e.ObservedMembers, func(a, b member) int { return cmp.Compare(a.Name, b.Name) })
	return e, true
}

// entryOfStatus parses an entry of the status. It returns none for the local cluster (I3).
func entryOfStatus(s *v1alpha1.EnvClusterStatus, local string) (entry, bool) {
	if s.ClusterID == local {
		return entry{}, false
	}
	e := entry{ClusterID: s.ClusterID, IsLocal: s.IsLocal, LastSnapshotTime: s.LastSnapshotTime,
		ObservedMembers: make([]member, 0, len(s.ObservedMembers))}
	for i := range s.ObservedMembers {
		m := &s.ObservedMembers[i]
		e.ObservedMembers = append(e.ObservedMembers, member{
			Name: m.Name, InstanceType: m.InstanceType, Multiplier: m.Multiplier, State: m.State,
			IdleCount: m.IdleCount, RunningCount: m.RunningCount, DesiredReplicas: m.DesiredReplicas,
			CurrentReplicas: m.CurrentReplicas, PendingRequests: m.PendingRequests,
			ScalingGroup: m.ScalingGroup, Priority: m.Priority,
		})
	}
	slices.SortFunc(e.ObservedMembers, func(a, b member) int { return cmp.Compare(a.Name, b.Name) })
	return e, true
}

// same reports whether two entries agree in all fields whose change is worth a write.
func (e entry) same(o entry) bool {
	return e.ClusterID == o.ClusterID && e.IsLocal == o.IsLocal &&
		slices.Equal(e.ObservedMembers, o.ObservedMembers)
}

func stateOf(s segment.State) v1alpha1.ObservedMemberState {
	switch s {
	case segment.Active:
		return v1alpha1.ObservedMemberStateActive
	case segment.Saturated:
		return v1alpha1.ObservedMemberStateSaturated
	case segment.Missing:
		return v1alpha1.ObservedMemberStateMissing
	case segment.Inconsistent:
		return v1alpha1.ObservedMemberStateInconsistent
	default:
		return ""
	}
}

// serving orders states from worst to best. A total has the best state of its members.
var serving = []v1alpha1.ObservedMemberState{
	"", v1alpha1.ObservedMemberStateMissing, v1alpha1.ObservedMemberStateInconsistent,
	v1alpha1.ObservedMemberStateSaturated, v1alpha1.ObservedMemberStateActive,
}

func (m *member) add(o *member) {
	if slices.Index(serving, o.State) > slices.Index(serving, m.State) {
		m.State = o.State
	}
	m.IdleCount = segment.Sum(m.IdleCount, o.IdleCount)
	m.RunningCount = segment.Sum(m.RunningCount, o.RunningCount)
	m.DesiredReplicas = segment.Sum(m.DesiredReplicas, o.DesiredReplicas)
	m.CurrentReplicas = segment.Sum(m.CurrentReplicas, o.CurrentReplicas)
	m.PendingRequests = segment.Sum(m.PendingRequests, o.PendingRequests)
}

func sizeOf(entries []entry) int {
	raw, err := json.Marshal(entries)
	if err != nil { // impossible with plain strings and numbers; if it happens, the write fails and says why
		return 0
	}
	return len(raw)
}

// errLocal is the error of a body that would write the local segment.
var errLocal = errors.New("refusing to write the local segment")

// encode returns the body of an apply: all fields that atoll-sync owns in this Env, and the Env's uid.
func encode(env *v1alpha1.SandboxEnv, local string, d decision) ([]byte, error) {
	for _, e := range d.entries {
		if e.ClusterID == local || e.IsLocal {
			return nil, fmt.Errorf("encoding the foreign segments of %s/%s: %w", env.Namespace, env.Name, errLocal)
		}
	}
	status := map[string]any{}
	if len(d.entries) > 0 { // null is refused, and leaving it out removes the entries too
		status["clusters"] = d.entries
	}
	if d.condition != nil {
		status["conditions"] = []metav1.Condition{*d.condition}
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       v1alpha1.SandboxEnvOwnerKind,
		"metadata":   map[string]any{"namespace": env.Namespace, "name": env.Name, "uid": env.UID},
		"status":     status,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the foreign segments of %s/%s: %w", env.Namespace, env.Name, err)
	}
	return body, nil
}
