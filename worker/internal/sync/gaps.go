// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// gap is a cluster in which an Env has members but that does not serve the Env.
type gap struct {
	cluster string
	reason  v1alpha1.ConditionReason // ClusterMissing or EnvMissing
}

// gaps are the gaps of one Env.
type gaps struct {
	missing []string // clusters that are not registered
	without []string // clusters that are registered and have reported, without such an Env
	// since is when each gap was first seen, shown or not.
	since map[gap]time.Time
	// next is the time until the next gap must be shown, or 0 if all are shown.
	next time.Duration
}

// gapsOf returns the gaps of an Env. A gap counts after it has lasted for a while, because a joining cluster, and a manifest that is
// applied cluster by cluster, pass through one. Without a hub, or with one that does not list its clusters, there are none.
func gapsOf(f facts) gaps {
	out := gaps{}
	if f.hub != hubInSync || f.registered == nil {
		return out
	}
	for i := range f.env.Spec.Clusters {
		c := &f.env.Spec.Clusters[i]
		if c.ClusterID == f.local || len(c.Members) == 0 {
			continue
		}
		found := gap{cluster: c.ClusterID}
		_, registered := f.registered[c.ClusterID]
		_, heard := f.heard[c.ClusterID]
		switch {
		case !registered:
			found.reason = v1alpha1.ReasonClusterMissing
		case heard && f.view[c.ClusterID] == nil:
			found.reason = v1alpha1.ReasonEnvMissing
		default:
			continue
		}
		out.add(found, f)
	}
	slices.Sort(out.missing)
	slices.Sort(out.without)
	return out
}

func (g *gaps) add(found gap, f facts) {
	since, before := f.gaps[found]
	if !before {
		since = f.now
		if found.toldBy(meta.FindStatusCondition(f.env.Status.Conditions, v1alpha1.SandboxEnvConditionFederated)) {
			since = f.now.Add(-patience) // a restarted worker sees every gap for the first time
		}
	}
	if g.since == nil {
		g.since = map[gap]time.Time{}
	}
	g.since[found] = since
	switch left := since.Add(patience).Sub(f.now); {
	case left > 0:
		g.next = shorter(g.next, left)
	case found.reason == v1alpha1.ReasonClusterMissing:
		g.missing = append(g.missing, found.cluster)
	default:
		g.without = append(g.without, found.cluster)
	}
}

// reason returns the reason of the worst gap, or "" if there is none.
func (g *gaps) reason() v1alpha1.ConditionReason {
	switch {
	case len(g.missing) > 0:
		return v1alpha1.ReasonClusterMissing
	case len(g.without) > 0:
		return v1alpha1.ReasonEnvMissing
	default:
		return ""
	}
}

const (
	notRegistered = " not registered at the hub"
	noSuchEnv     = " no such Env"
)

func (g *gaps) String() string {
	var parts []string
	if len(g.missing) > 0 {
		parts = append(parts, list(g.missing)+verb(g.missing, " is", " are")+notRegistered)
	}
	if len(g.without) > 0 {
		parts = append(parts, list(g.without)+verb(g.without, " has", " have")+noSuchEnv)
	}
	return strings.Join(parts, "; ")
}

// toldBy reports whether a condition's message names the gap.
func (g gap) toldBy(c *metav1.Condition) bool {
	if c == nil {
		return false
	}
	ending := noSuchEnv
	if g.reason == v1alpha1.ReasonClusterMissing {
		ending = notRegistered
	}
	for part := range strings.SplitSeq(c.Message, "; ") {
		words := strings.FieldsFunc(part, func(r rune) bool { return r == ' ' || r == ',' })
		if strings.HasSuffix(part, ending) && slices.Contains(words, g.cluster) {
			return true
		}
	}
	return false
}

func verb(ids []string, one, several string) string {
	if len(ids) == 1 {
		return one
	}
	return several
}
