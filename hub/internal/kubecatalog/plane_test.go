// SPDX-License-Identifier: Apache-2.0

package kubecatalog

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/catalog"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
)

// What is written in the hub's cluster reaches the clusters; what becomes of it is told there; the API only reads.
func TestTaken(t *testing.T) {
	s := newSite(t, false)
	s.refuse("west", &federationv1.CatalogOutcome{State: federationv1.CatalogOutcome_CONFLICT, Reason: "Conflict", Message: "by kubectl"})
	s.create(s.text("one"))
	s.waitImage("east", "one")
	s.wait("a conflict", "Catalogued=False/Conflict: revision 1: west: Conflict: by kubectl; Stalled=True/Conflict")
	s.refuse("west", nil)
	s.wait("it is taken", "Catalogued=True/Applied: revision 1")
	if got := s.told(); strings.Contains(got, "Stalled") || strings.Contains(got, "Reconciling") {
		t.Errorf("it has still %s", got)
	}
	s.change(setImage("two"))
	s.waitImage("west", "two")
	s.wait("the change", "Catalogued=True/Applied: revision 2")
	revisions, err := s.catalog.ListEnvRevisions(s.admin(), &sandboxv1.ListEnvRevisionsRequest{Namespace: s.Namespace, Name: "shell"})
	must.Succeed(t, err)
	if got := revisions.GetRevisions()[0].GetChangedBy(); got != "argocd-controller" {
		t.Errorf("it was changed by %s", got)
	}

	s.change(func(env *v1alpha1.SandboxEnv) {
		env.Annotations = map[string]string{v1alpha1.CatalogRolloutAnnotationKey: "stages: [[north]]"}
		env.Spec.Overrides.Image = "three"
	})
	s.wait("a refusal", "Catalogued=False/Refused: sandboxenv "+s.Namespace+"/shell: metadata.annotations[agentbox.navix.sh/rollout]: "+
		`stages[0]: "north" is not valid`)
	if got := s.image("west"); got != "two" {
		t.Errorf("west has %s", got)
	}
	s.change(func(env *v1alpha1.SandboxEnv) { env.Annotations = nil })
	s.waitImage("west", "three")

	err = s.catalog.PutEnv(s.admin(), &sandboxv1.PutEnvRequest{Namespace: s.Namespace, Name: "shell"})
	s.expectElsewhere("PUT", err)
	err = s.catalog.DeleteEnv(s.admin(), &sandboxv1.DeleteEnvRequest{Namespace: s.Namespace, Name: "shell"})
	s.expectElsewhere("DELETE", err)
	s.Must(s.Live.Delete(t.Context(), s.Env("shell")))
	s.waitImage("west", "")
	s.waitImage("east", "")
}

func (s *site) expectElsewhere(what string, err error) {
	s.Helper()
	if p := problem.FromError(err); p == nil || p.Reason != problem.Misconfigured ||
		!strings.Contains(p.Message, "change sandboxenv "+s.Namespace+"/shell there") {
		s.Errorf("%s: %v", what, err)
	}
}

// I5: what is gone without having been deleted stays, until a person says so.
func TestI5AbsenceIsNotDeletion(t *testing.T) {
	s := newSite(t, false)
	s.create(s.text("one"))
	s.waitImage("west", "one")
	s.wait("it is taken", "Catalogued=True/Applied")
	s.stop()
	s.change(func(env *v1alpha1.SandboxEnv) { env.Finalizers = nil }) // as a restored etcd does
	s.Must(s.Live.Delete(t.Context(), s.Env("shell")))
	s.start()
	s.marker("first")
	if got := s.image("west"); got != "one" {
		t.Errorf("west has %q", got)
	}
	must.Succeed(t, s.catalog.DeleteEnv(s.admin(), &sandboxv1.DeleteEnvRequest{Namespace: s.Namespace, Name: "shell"}))
	s.waitImage("west", "")

	s.create(s.text("two"))
	s.waitImage("west", "two")
	s.wait("it is taken", "Catalogued=True/Applied")
	s.stop()
	s.Must(s.Live.Delete(t.Context(), s.Env("shell"))) // while the hub is away
	s.start()
	s.waitImage("west", "")
}

// marker makes a template that the hub takes, so that all before it was looked at.
func (s *site) marker(name string) {
	s.Helper()
	template := &v1alpha1.SandboxTemplate{}
	must.Succeed(s, yaml.Unmarshal([]byte(`spec: {template: {spec: {containers: [{name: main, image: busybox}]}}}`), template))
	template.Name = s.Namespace + "-" + name
	s.Must(s.Live.Create(s.Context(), template, client.FieldOwner("kubectl-create")))
	s.Eventually("a template to be taken", func() error {
		s.Must(s.Live.Get(s.Context(), client.ObjectKeyFromObject(template), template))
		return wait.If(meta.IsStatusConditionTrue(template.Status.Conditions, v1alpha1.SandboxEnvConditionCatalogued), template.Status)
	})
	s.Must(s.Live.Delete(s.Context(), template))
	s.Eventually("the template to go", func() error {
		if err := s.Live.Get(s.Context(), client.ObjectKeyFromObject(template), template); err == nil {
			return fmt.Errorf("it has the finalizers %v", template.Finalizers)
		}
		return nil
	})
}

// I4: an object of an earlier generation is not taken until it changes from there.
func TestI4AnObjectThatWentBack(t *testing.T) {
	s := newSite(t, false)
	s.create(s.text("one"))
	s.wait("it is taken", "Catalogued=True/Applied: revision 1")
	s.change(setImage("two"))
	s.wait("the change", "Catalogued=True/Applied: revision 2")
	env := s.Env("shell")
	s.stop()
	back := catalog.Sourced{UID: string(env.UID), Generation: 1, By: "kubectl", Manifest: s.object(s.text("one"))}
	for range 2 {
		if err := s.catalog.Take(t.Context(), back); err == nil || !strings.Contains(err.Error(), "restored") {
			t.Errorf("what went back is taken: %v", err)
		}
	}
	back.Generation, back.Manifest = 2, s.object(s.text("three"))
	must.Succeed(t, s.catalog.Take(t.Context(), back))
	s.start()
}

// I3: the hub's own cluster has the object itself: nothing is delivered there, and the user's object keeps its one writer.
func TestI3TheHubsOwnCluster(t *testing.T) {
	s := newSite(t, true)
	s.create(s.text("one"))
	s.waitImage("west", "one")
	s.wait("both have it", "Catalogued=True/Applied: revision 1")
	s.change(setImage("two"))
	s.waitImage("west", "two")
	s.wait("both have the change", "Catalogued=True/Applied: revision 2")
	if got := s.image("east"); got != "" {
		t.Errorf("the hub's own cluster was given %s", got)
	}
	for _, f := range s.Env("shell").ManagedFields {
		if strings.HasPrefix(f.Manager, "atoll-") && strings.Contains(f.FieldsV1.GetRawString(), `"f:spec"`) {
			t.Errorf("%s owns %s", f.Manager, f.FieldsV1.GetRawString())
		}
	}
	s.change(func(env *v1alpha1.SandboxEnv) {
		env.Annotations = map[string]string{v1alpha1.CatalogRolloutAnnotationKey: "stages: [[west], [east]]"}
	})
	s.wait("a plan that it cannot keep", "Catalogued=False/Refused: sandboxenv "+s.Namespace+`/shell: stages[1]: "east" is not valid`)
}

// What a catalogue has delivered is no source, and gets no finalizer.
func TestWhatIsDeliveredIsNoSource(t *testing.T) {
	s := newSite(t, false)
	env := &v1alpha1.SandboxEnv{}
	must.Succeed(t, yaml.Unmarshal([]byte(s.text("one")), env))
	env.Annotations = map[string]string{v1alpha1.CatalogAnnotationKey: "another/7"}
	s.Must(s.Live.Create(t.Context(), env, client.FieldOwner("atoll-catalog")))
	s.marker("delivered")
	if got := s.Env("shell"); len(got.Finalizers) > 0 || len(got.Status.Conditions) > 0 || s.image("west") != "" {
		t.Errorf("it was taken: %v, %v, west has %s", got.Finalizers, got.Status, s.image("west"))
	}
	if entry := s.catalog.Entry(s.admin(), segment.Key{Namespace: s.Namespace, Name: "shell"}); entry != nil {
		t.Errorf("the catalogue has %v", entry)
	}
}

// Of two replicas one reads and writes the hub's cluster; when it ends the other one goes on from there.
func TestOneLeads(t *testing.T) {
	s := newSiteOn(t, false, store.NewMemory())
	s.create(s.text("one"))
	s.wait("it is taken", "Catalogued=True/Applied: revision 1")
	first := s.stop
	s.start()
	s.Eventually("the second one to know its cluster", func() error {
		_, known := s.source.Own("east")
		return wait.If(known, "that it does not")
	})
	s.change(setImage("two"))
	s.wait("the first one takes it", "Catalogued=True/Applied: revision 2")
	s.marker("leads")
	if n := s.calls.Load(); n != 0 {
		t.Errorf("the second one made %d calls while the first one leads", n)
	}
	first()
	s.change(setImage("three"))
	s.wait("the second one takes it", "Catalogued=True/Applied: revision 3")
	s.waitImage("west", "three")
}
