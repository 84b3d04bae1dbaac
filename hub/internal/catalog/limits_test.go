// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
)

var demo = segment.Key{Namespace: "default", Name: "demo"}

// Claims count by Env and cluster, and not those from before a stage, or of long ago.
func TestFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewClaimCounts(clock.RealClock{})
		began := time.Now()
		f.Sent(demo, "east", false) // in the step of the beginning: it may be from before
		time.Sleep(claimCountStep)
		f.Sent(demo, "east", false)
		f.Sent(demo, "east", true)
		f.Sent(demo, "west", false)
		f.Sent(segment.Key{Namespace: "default", Name: "other"}, "east", false)
		if sent, failed := f.Since(demo, []string{"east"}, began); sent != 2 || failed != 1 {
			t.Errorf("%d of %d failed, want 1 of 2", failed, sent)
		}
		time.Sleep(claimCountSteps * claimCountStep)
		if sent, _ := f.Since(demo, []string{"east", "west"}, began); sent != 0 {
			t.Errorf("%d claims of long ago count", sent)
		}
		f.drop(stepOf(time.Now()))
		if len(f.rows) != 0 {
			t.Errorf("%d rows of nothing are kept", len(f.rows))
		}
	})
}

func active(name string, state federationv1.MemberState) *federationv1.EnvSegment {
	return &federationv1.EnvSegment{Key: &federationv1.EnvKey{Namespace: "default", Name: "demo"},
		Members: []*federationv1.MemberSegment{{Name: name, State: state}}}
}

func (w *world) change(plan, size string) {
	w.Helper()
	text := strings.Replace(envText, "namespace: default", `namespace: default, annotations: {agentbox.navix.sh/rollout: "`+plan+`"}`, 1)
	must.Succeed(w, w.putEnv(strings.ReplaceAll(text, "instanceType: s", "instanceType: "+size)))
}

func (w *world) rollout() *sandboxv1.Rollout {
	w.Helper()
	r, err := w.GetRollout(w.admin(), &sandboxv1.GetRolloutRequest{Namespace: "default", Name: "demo"})
	must.Succeed(w, err)
	return r
}

// A change that breaks claims stops at its first stage and goes back, by the hub's own counts; one that does not goes on.
func TestRolloutJudgesClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.opts.ClaimCounts = NewClaimCounts(clock.RealClock{})
		defer w.run()()
		must.Succeed(t, w.putEnv(envText))
		w.expect("the first", "demo@1", "demo@1")
		for _, id := range []string{"east", "west"} {
			w.federation.Report(id, active("pool", federationv1.MemberState_ACTIVE))
		}
		const plan = "{stages: [[east], [west]], pause: 5m, onFailure: rollback, abortOn: {claimFailureRate: 20%}}"
		claims := func(good, bad int) {
			time.Sleep(30 * time.Second)
			for i := range good + bad {
				w.opts.ClaimCounts.Sent(demo, "east", i < good)
			}
		}
		w.change(plan, "m")
		claims(8, 2)
		w.expect("a fifth fails", "demo@2", "demo@1")
		time.Sleep(15 * time.Minute)
		w.expect("that is not more than a fifth", "demo@2", "demo@2")
		if r := w.rollout(); r.GetState() != sandboxv1.Rollout_DONE {
			t.Errorf("got %v", r)
		}
		w.change(plan, "l")
		claims(7, 3)
		w.expect("more fail", "demo@4", "demo@4")
		if r := w.rollout(); r.GetState() != sandboxv1.Rollout_UNDONE || r.GetReason() != "ClaimsFail" ||
			!strings.Contains(r.GetMessage(), "3 of 10 claims failed since the stage began, more than 20%") {
			t.Errorf("got %v", r)
		}
	})
}

// A stage is ready once the Env is reported as it was written, and each member that is to have Pods has one that can serve.
func TestRolloutWaitsForPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.run()()
		must.Succeed(t, w.putEnv(envText))
		w.expect("the first", "demo@1", "demo@1")
		report := func(generation int64, ready, running int32) {
			reported := active("pool", federationv1.MemberState_ACTIVE)
			reported.Generation = generation
			m := reported.GetMembers()[0]
			m.Desired, m.Idle, m.ReadyIdle, m.Running = 5, 5-running, ready, running
			w.federation.Report("east", reported)
		}
		report(1, 5, 0)
		w.federation.Report("west", active("pool", federationv1.MemberState_ACTIVE))
		w.clusters["east"].Generation = 2
		w.change("{stages: [[east], [west]], pause: 5m}", "m")
		waits := func(why string) {
			t.Helper()
			w.expect(why, "demo@2", "demo@1")
			if r := w.rollout(); r.GetReason() != "StageNotReady" || r.GetMessage() != why {
				t.Errorf("got %v, want %s", r, why)
			}
		}
		waits("east reports the Env as it was before")
		report(2, 0, 0)
		waits("east: pool has no Pod that is ready, of 5")
		report(2, 0, 1)
		w.expect("a sandbox runs there", "demo@2", "demo@1")
		report(2, 0, 0)
		time.Sleep(6 * time.Minute)
		w.expect("it had served, and the pause is over", "demo@2", "demo@2")
	})
}

// A rollout fails when a cluster refuses its own revision, and not by what the cluster has said of an earlier one.
func TestRolloutIsJudgedByItsOwnRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		conflict := &federationv1.CatalogOutcome{State: federationv1.CatalogOutcome_CONFLICT, Reason: "Conflict"}
		w.clusters["west"].Refuse["demo"] = conflict
		stop := w.run()
		must.Succeed(t, w.putEnv(envText))
		w.expect("west refuses the first", "demo@1", "")
		stop()
		delete(w.clusters["west"].Refuse, "demo")
		w.away["west"] = true
		w.restart()
		stop = w.run()
		w.change("{stages: [[west], [east]], onFailure: rollback}", "m")
		w.expect("west is away", "demo@1", "")
		if r := w.rollout(); r.GetState() != sandboxv1.Rollout_RUNNING || r.GetMessage() != "west has not got it yet" {
			t.Errorf("a refusal of an earlier revision counts: %v", r)
		}
		stop()
		w.clusters["west"].Refuse["demo"] = conflict
		w.away["west"] = false
		w.restart()
		stop = w.run()
		w.expect("west refuses this one as well", "demo@3", "")
		if r := w.rollout(); r.GetState() != sandboxv1.Rollout_UNDONE || r.GetReason() != "StageRefused" {
			t.Errorf("got %v", r)
		}
		stop()
	})
}

// Of a stage, no more clusters change at a time than may be unavailable.
func TestRolloutMaxUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.run()()
		must.Succeed(t, w.putEnv(envText))
		w.expect("the first", "demo@1", "demo@1")
		w.federation.Report("east", active("pool", federationv1.MemberState_MISSING))
		w.federation.Report("west", active("pool", federationv1.MemberState_ACTIVE))
		w.change("{stages: [[east, west]], maxUnavailable: 1}", "m")
		w.expect("east is not ready", "demo@2", "demo@1")
		w.federation.Report("east", active("pool", federationv1.MemberState_ACTIVE))
		w.expect("east is ready", "demo@2", "demo@2")
		if r := w.rollout(); r.GetState() != sandboxv1.Rollout_DONE {
			t.Errorf("got %v", r)
		}
	})
}

// hiddenTemplate is the template of templateText, which only the team red sees.
var hiddenTemplate = strings.Replace(templateText, "spec: {", "spec: {visibility: {rules: [{team: red}]}, ", 1)

// team is the context of a caller of a team.
func team(t *testing.T, name string) context.Context {
	t.Helper()
	return principal.With(t.Context(), principal.Principal{Name: "bob", Team: name, AllNamespaces: true})
}

// meanwhile is a store of several replicas, where another one writes an entry once this one has read it, or once this one has committed.
// afterRange is for a write of this replica while it reads everything.
type meanwhile struct {
	store.Shared
	key         string
	afterRead   func() error // after a read of key; nil: nothing is written
	afterCommit func() error // after a commit; nil: nothing is written
	afterRange  func() error // after a read of several entries; nil: nothing is written
}

func (r *meanwhile) Range(ctx context.Context, prefix, after string, limit int) ([]store.Entry, error) {
	entries, err := r.Shared.Range(ctx, prefix, after, limit)
	if then := r.afterRange; then != nil {
		r.afterRange = nil
		err = errors.Join(err, then())
	}
	return entries, err
}

func (r *meanwhile) Commit(ctx context.Context, txn store.Txn) (uint64, error) {
	revision, err := r.Shared.Commit(ctx, txn)
	if then := r.afterCommit; then != nil {
		r.afterCommit = nil
		err = errors.Join(err, then())
	}
	return revision, err
}

func (r *meanwhile) Get(ctx context.Context, key string) (store.Entry, bool, error) {
	e, found, err := r.Shared.Get(ctx, key)
	if then := r.afterRead; key == r.key && then != nil {
		r.afterRead = nil
		err = errors.Join(err, then())
	}
	return e, found, err
}

// A put replaces the template that its caller was found to see, and not one that another replica has hidden from it meanwhile.
func TestATemplateThatIsHiddenMeanwhileIsNotReplaced(t *testing.T) {
	w := newWorld(t)
	s := &meanwhile{Shared: store.NewMemory(), key: objectPrefix + keyOf(templateRef("base"))}
	w.store = s
	w.restart()
	put := func(ctx context.Context, text string) error {
		_, err := Templates{Service: w.Service}.PutTemplate(ctx, &sandboxv1.PutTemplateRequest{Name: "base", Template: object(t, text)})
		return err
	}
	must.Succeed(t, put(w.admin(), hiddenTemplate))
	e, _, err := s.Get(t.Context(), s.key)
	must.Succeed(t, err)
	must.Succeed(t, put(w.admin(), templateText))
	s.afterRead = func() error {
		_, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: s.key, Value: e.Value}}})
		return err
	}
	blue := team(t, "blue")
	if err := put(blue, strings.Replace(templateText, "busybox", "other", 1)); err == nil {
		t.Error("the template is replaced")
	}
	if now, _, err := s.Get(t.Context(), s.key); err != nil || string(now.Value) != string(e.Value) {
		t.Errorf("the template is %s, %v", now.Value, err)
	}
}

// A plan, the revisions and the result of a put are of the template that their caller was found to see, and not of one that another replica
// has written meanwhile.
func TestATemplateThatIsHiddenMeanwhileIsNotShown(t *testing.T) {
	w := newWorld(t)
	s := &meanwhile{Shared: store.NewMemory(), key: objectPrefix + keyOf(templateRef("base"))}
	w.store = s
	w.restart()
	other := Templates{Service: w.Service} // of another replica
	w.restart()
	hide := func() error {
		_, err := other.PutTemplate(w.admin(), &sandboxv1.PutTemplateRequest{Name: "base", Template: object(t, hiddenTemplate)})
		return err
	}
	blue := team(t, "blue")
	templates := Templates{Service: w.Service}
	w.putTemplate()
	must.Succeed(t, w.putEnv(envText)) // the plan asks its clusters

	changed := object(t, strings.Replace(templateText, "busybox", "other", 1))
	s.afterRead = hide
	_, err := templates.PlanTemplate(blue, &sandboxv1.PlanTemplateRequest{Name: "base", Template: changed})
	must.Succeed(t, err)
	if got := has(w.clusters["east"]); got != "base@2" {
		t.Errorf("the plan of a change of revision 1 asks east for %s", got)
	}

	w.putTemplate() // revision 3 shows it again
	s.afterRead = hide
	list, err := templates.ListTemplateRevisions(blue, &sandboxv1.ListTemplateRevisionsRequest{Name: "base"})
	must.Succeed(t, err)
	if all := list.GetRevisions(); len(all) != 3 || all[0].GetRevision() != 3 || all[0].GetManifest() == nil || all[1].GetManifest() != nil {
		t.Errorf("the revisions up to 3, without the manifest of 2, are %v", all)
	}

	w.putTemplate() // revision 5 shows it again
	s.afterCommit = func() error {
		err := hide()
		templates.latest(t.Context(), templateRef("base")) // as the watch of this replica may
		return err
	}
	put, err := templates.PutTemplate(blue, &sandboxv1.PutTemplateRequest{Name: "base", Template: changed})
	must.Succeed(t, err)
	if got := put.GetCatalog().GetRevision(); got != 6 {
		t.Errorf("the put of revision 6 shows revision %d", got)
	}
}

// A template that a caller does not see is not there for it, and no Env of its can name it.
func TestVisibility(t *testing.T) {
	w := newWorld(t)
	templates := Templates{Service: w.Service}
	_, err := templates.PutTemplate(w.admin(), &sandboxv1.PutTemplateRequest{Name: "base", Template: object(t, hiddenTemplate)})
	must.Succeed(t, err)
	put := func(ctx context.Context) error {
		return w.PutEnv(ctx, &sandboxv1.PutEnvRequest{Namespace: "default", Name: "demo", Env: object(t, envText)})
	}
	if err := put(team(t, "blue")); err == nil ||
		!strings.Contains(err.Error(), `spec.templateRef.name: "base" is not valid, want a template whose`) {
		t.Errorf("an Env of a template that is hidden: %v", err)
	}
	must.Succeed(t, put(team(t, "red")))
	for what, call := range map[string]func(ctx context.Context) error{
		"put": func(ctx context.Context) error {
			_, err := templates.PutTemplate(ctx, &sandboxv1.PutTemplateRequest{Name: "base", Template: object(t, templateText)})
			return err
		},
		"delete": func(ctx context.Context) error {
			_, err := templates.DeleteTemplate(ctx, &sandboxv1.DeleteTemplateRequest{Name: "base"})
			return err
		},
		"plan": func(ctx context.Context) error {
			_, err := templates.PlanTemplate(ctx, &sandboxv1.PlanTemplateRequest{Name: "base", Template: object(t, templateText)})
			return err
		},
		"revisions": func(ctx context.Context) error {
			_, err := templates.ListTemplateRevisions(ctx, &sandboxv1.ListTemplateRevisionsRequest{Name: "base"})
			return err
		},
		"get": func(ctx context.Context) error {
			_, err := templates.GetTemplate(ctx, &sandboxv1.GetTemplateRequest{Name: "base"})
			return err
		},
	} {
		if p := problem.FromError(call(team(t, "blue"))); p == nil || p.Reason != problem.NotFound {
			t.Errorf("%s of a template that is hidden: %v", what, p)
		}
	}
	list, err := templates.ListTemplates(team(t, "blue"), &sandboxv1.ListTemplatesRequest{})
	if err != nil || len(list.GetTemplates()) != 0 {
		t.Errorf("the list has %v, %v", list.GetTemplates(), err)
	}
	if list, err = templates.ListTemplates(team(t, "red"), &sandboxv1.ListTemplatesRequest{}); err != nil || len(list.GetTemplates()) != 1 {
		t.Errorf("the team's list has %v, %v", list.GetTemplates(), err)
	}
	_, err = templates.DeleteTemplate(w.admin(), &sandboxv1.DeleteTemplateRequest{Name: "base"})
	must.Succeed(t, err)
	removed := &sandboxv1.ListTemplateRevisionsRequest{Name: "base"}
	_, err = templates.ListTemplateRevisions(team(t, "blue"), removed)
	workertest.WantReason(t, err, problem.NotFound)
	revisions, err := templates.ListTemplateRevisions(team(t, "red"), removed)
	if all := revisions.GetRevisions(); err != nil || len(all) != 2 || all[1].GetManifest() == nil {
		t.Errorf("the team sees revisions %v of the template that is removed, %v", all, err)
	}
}
