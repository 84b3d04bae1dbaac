// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/plural"
	"navix.sh/atoll/pkg/verify"
)

// members reports problems in the hub's view of Envs: the states and counts of their members.
func members(s *Snapshot) []Diagnosis {
	if s.Hub == nil {
		return nil
	}
	var out []Diagnosis
	for _, e := range s.Hub.Envs {
		name := envName(e)
		for _, c := range e.GetClusters() {
			if s.cluster(c.GetClusterId()) != nil {
				continue // the conditions of its Env say more
			}
			describe := fmt.Sprintf("%s -n %s describe sandboxenv %s", s.kubectl(c.GetClusterId()), e.GetNamespace(), e.GetName())
			for _, m := range c.GetMembers() {
				if d, wrong := member(m); wrong {
					d.Cluster, d.Object, d.Do = c.GetClusterId(), "env "+name, describe
					out = append(out, d)
				}
			}
			if c.GetFault() != "" {
				out = append(out, Diagnosis{Reason: EnvNotReady, Severity: Warning, Cluster: c.GetClusterId(), Object: "env " + name,
					What: c.GetFault(), Do: describe})
			}
		}
		out = append(out, gaps(e)...)
		if d, wrong := room(e); wrong {
			d.Object = "env " + name
			d.Do = "see who could take a claim: atollctl explain " + name + d.Do
			out = append(out, d)
		}
	}
	return out
}

const (
	cureMissing = "let it join, or name in spec.clusters what there is: atollctl clusters"
	cureWithout = "apply the Env there, too, or take the cluster out of spec.clusters"
)

func isGap(c *metav1.Condition) bool {
	return c.Reason == string(v1alpha1.ReasonClusterMissing) || c.Reason == string(v1alpha1.ReasonEnvMissing)
}

// hubKnowsGaps reports whether the hub lists the clusters that do not serve an Env. The conditions of each cluster then only repeat that.
func (s *Snapshot) hubKnowsGaps(e *v1alpha1.SandboxEnv) bool {
	return s.Hub != nil && slices.ContainsFunc(s.Hub.Envs, func(o *sandboxv1.Env) bool {
		return o.GetNamespace() == e.Namespace && o.GetName() == e.Name && len(o.GetMissingClusters())+len(o.GetClustersWithoutEnv()) > 0
	})
}

// gaps reports, from the hub's view, clusters in which an Env has members but which do not serve it.
func gaps(e *sandboxv1.Env) (out []Diagnosis) {
	for _, id := range e.GetMissingClusters() {
		out = append(out, Diagnosis{What: "has members of cluster " + id + ", which is not registered", Do: cureMissing})
	}
	for _, id := range e.GetClustersWithoutEnv() {
		out = append(out, Diagnosis{What: "has members of cluster " + id + ", which has no such Env", Do: cureWithout})
	}
	for i := range out {
		out[i].Reason, out[i].Severity, out[i].Object = EnvNotFederated, Warning, "env "+envName(e)
	}
	return out
}

func member(m *sandboxv1.EnvMember) (d Diagnosis, wrong bool) {
	d.Severity = Warning
	switch unready := m.GetIdle() - m.GetReadyIdle(); {
	case m.GetState() == string(v1alpha1.ObservedMemberStateMissing):
		d.Reason, d.What = MemberMissing, "member "+m.GetName()+" has no pool"
	case m.GetState() == string(v1alpha1.ObservedMemberStateInconsistent):
		d.Reason, d.What = MemberInconsistent, "pool "+m.GetName()+" is not what the Env asks for"
	case unready > 0 && m.GetReadyIdle() == 0:
		d.Reason, d.What = PodsNotReady, fmt.Sprintf("none of the %d idle Pods of pool %s can serve", unready, m.GetName())
	default:
		return d, false
	}
	return d, true
}

// memberCounts counts the members of an Env by their state.
type memberCounts struct {
	away, members       int // in clusters that get no claims now, and in the others
	serving, saturated  int // members with a pool of the Env; of these, those that cannot grow
	ready, pending      int32
	misplaced, deficits int // members without a pool; with a pool that is not as the Env asks, or not its own
}

func countMembers(e *sandboxv1.Env) (s memberCounts) {
	for _, c := range e.GetClusters() {
		switch c.GetState() {
		case sandboxv1.ClusterState_FRESH, sandboxv1.ClusterState_SUSPECT, sandboxv1.ClusterState_DEGRADED:
		default:
			s.away += len(c.GetMembers())
			continue
		}
		for _, m := range c.GetMembers() {
			s.members++
			switch m.GetState() {
			case string(v1alpha1.ObservedMemberStateMissing):
				s.misplaced++
				continue
			case string(v1alpha1.ObservedMemberStateInconsistent):
				s.deficits++
				continue
			case string(v1alpha1.ObservedMemberStateSaturated):
				s.saturated++
			}
			s.serving++
			s.ready, s.pending = s.ready+m.GetReadyIdle(), s.pending+m.GetPending()
		}
	}
	return s
}

// unserving describes why none of the members can serve.
func (s *memberCounts) unserving() string {
	var parts []string
	if s.misplaced > 0 {
		parts = append(parts, fmt.Sprintf("%d without a pool", s.misplaced))
	}
	if s.deficits > 0 {
		parts = append(parts, fmt.Sprintf("%d with a pool that is not as the Env asks, or is another Env's", s.deficits))
	}
	return strings.Join(parts, ", ")
}

// room reports an Env that cannot serve another claim, or cannot grow. Do suggests a remedy in addition to looking at the candidates.
func room(e *sandboxv1.Env) (d Diagnosis, wrong bool) {
	const more = "\nraise replicas (or maxReplicas) of a member, or add one in another cluster"
	s := countMembers(e)
	switch {
	case s.members == 0 && s.away > 0:
		return Diagnosis{Reason: EnvExhausted, Severity: Critical, What: "no cluster that has members of it can be reached",
			Do: "\nsee which are away: atollctl clusters"}, true
	case s.members == 0:
		return Diagnosis{Reason: EnvNotReady, Severity: Critical, What: "has no member in any cluster that has joined",
			Do: "\nname clusters in spec.clusters that there are: atollctl clusters"}, true
	case s.serving == 0:
		return Diagnosis{Reason: EnvNotReady, Severity: Critical,
			What: "no member can serve: " + s.unserving(),
			Do:   "\nmore replicas do not help; see the members: atollctl envs " + envName(e)}, true
	case s.ready == 0 && s.pending == 0 && s.saturated < s.serving && e.GetDesired() > 0:
		return Diagnosis{Reason: EnvExhausted, Severity: Warning,
				What: fmt.Sprintf("no member has an idle Pod that is ready; %s, the next claim waits for a new Pod",
					plural.Form(e.GetRunning(), "sandbox runs", "sandboxes run")),
				Do: "\nan Env that does not grow by itself needs more replicas of a member, or fewer sandboxes"},
			true
	case s.ready == 0 && e.GetDesired() > 0:
		return Diagnosis{Reason: EnvExhausted, Severity: Critical,
				What: fmt.Sprintf("no member has an idle Pod that is ready; %d claims wait, %d sandboxes run", s.pending, e.GetRunning()), Do: more},
			true
	case s.saturated == s.serving:
		return Diagnosis{Reason: EnvSaturated, Severity: Warning,
			What: fmt.Sprintf("cannot grow in any cluster; %d idle Pods are left", s.ready), Do: more}, true
	}
	return Diagnosis{}, false
}

func envName(e *sandboxv1.Env) string { return e.GetNamespace() + "/" + e.GetName() }

// conditions reports problems in the conditions that clusters set on their Envs.
func conditions(s *Snapshot) []Diagnosis {
	var out []Diagnosis
	for i := range s.Clusters {
		c := &s.Clusters[i]
		for j := range c.Envs {
			e := &c.Envs[j]
			for _, condition := range []string{v1alpha1.SandboxEnvConditionReady, v1alpha1.SandboxEnvConditionFederated,
				v1alpha1.SandboxEnvConditionTemplateConsistent, v1alpha1.SandboxEnvConditionAutoscalingActive} {
				found := meta.FindStatusCondition(e.Status.Conditions, condition)
				if found == nil || found.Status == metav1.ConditionTrue {
					continue
				}
				d, wrong := ofCondition(found)
				if !wrong || isGap(found) && s.hubKnowsGaps(e) {
					continue
				}
				d.Cluster, d.Object, d.What = c.ID, "env "+e.Namespace+"/"+e.Name,
					fmt.Sprintf("%s=%s, %s: %s", found.Type, found.Status, found.Reason, found.Message)
				d.Since = s.age(c, found.LastTransitionTime.Time)
				d.Do = strings.NewReplacer("KUBECTL", s.kubectl(c.ID), "NAMESPACE", e.Namespace, "ENV", e.Name,
					"TEMPLATE", e.Spec.TemplateRef.Name, "LOGS", s.logs(c.ID)).Replace(d.Do)
				out = append(out, d)
			}
		}
	}
	return out
}

func ofCondition(c *metav1.Condition) (d Diagnosis, wrong bool) {
	d.Severity = Warning
	switch c.Type {
	case v1alpha1.SandboxEnvConditionReady:
		d.Reason, d.Do = EnvNotReady, "KUBECTL -n NAMESPACE describe sandboxenv ENV"
		if c.Reason == string(v1alpha1.ReasonTemplateNotFound) {
			d.Do = "apply the template there: KUBECTL apply -f … (SandboxTemplate TEMPLATE)"
		}
	case v1alpha1.SandboxEnvConditionTemplateConsistent:
		d.Reason, d.Severity = TemplateDiffers, Info
		switch v1alpha1.ConditionReason(c.Reason) {
		case v1alpha1.ReasonTemplateNotFound:
			d.Do = "pools go on from their snapshots; apply the template there: KUBECTL apply -f … (SandboxTemplate TEMPLATE)"
		default:
			d.Do = "pools go on from their snapshots; see what would change: atollctl envs refresh NAMESPACE/ENV --dry-run\n" +
				"to make them from what the template and the instance types are now: atollctl envs refresh NAMESPACE/ENV"
		}
	case v1alpha1.SandboxEnvConditionAutoscalingActive:
		switch v1alpha1.ConditionReason(c.Reason) {
		case v1alpha1.ReasonAutoscalingNotConfigured, v1alpha1.ReasonAutoscalingDisabled:
			return d, false
		}
		d.Reason, d.Do = AutoscalingStopped, "replicas stay as they are: KUBECTL -n NAMESPACE edit sandboxenv ENV"
	case v1alpha1.SandboxEnvConditionFederated:
		d.Reason, d.Do = EnvNotFederated, "see which: atollctl clusters"
		switch v1alpha1.ConditionReason(c.Reason) {
		case v1alpha1.ReasonHubUnreachable:
			d.Do = "claims here are served all the same; see why the worker is not attached: LOGS"
		case v1alpha1.ReasonClusterMissing:
			d.Do = cureMissing
			if strings.Contains(c.Message, "no such Env") {
				d.Do += "\n" + cureWithout
			}
		case v1alpha1.ReasonEnvMissing:
			d.Do = cureWithout
		case v1alpha1.ReasonTooLarge:
			d.Severity, d.Do = Info, "as designed: other clusters are shown as totals; the hub has them all: atollctl envs NAMESPACE/ENV"
		}
	}
	return d, true
}

// age returns how long ago the given time was, by the clock of the API server that wrote it.
func (s *Snapshot) age(c *verify.Cluster, at time.Time) time.Duration {
	now := c.Clock.Now
	if now.IsZero() {
		now = s.Now
	}
	if at.IsZero() {
		return 0
	}
	return max(0, now.Sub(at))
}
