// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/worker/internal/apitime"
)

var plain = planetest.New("catalog", plane.Options{}, func(context.Context, *plane.Plane) error { return nil })

func TestMain(m *testing.M) { plain.Main(m) }

// site is a namespace of a real API server, as the cluster east.
type site struct {
	*planetest.Place
	*testing.T
	writer *Writer
	name   string // of the template
}

func newSite(t *testing.T) *site {
	t.Helper()
	place := plain.Place(t)
	w, err := New(Options{ClusterID: "east", Config: rest.CopyConfig(place.Config()), Time: apitime.New(clock.RealClock{}),
		Log: testlog.New(t)})
	must.Succeed(t, err)
	return &site{Place: place, T: t, writer: w, name: place.Namespace}
}

func (s *site) env(image, cluster string) []byte {
	return s.json(fmt.Sprintf(`
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: shell, namespace: %s}
spec:
  templateRef: {name: %s}
  mode: WarmPool
  overrides: {image: %q}
  clusters: [{clusterID: %s, members: [{name: shell-east}]}]
`, s.Namespace, s.name, image, cluster))
}

func (s *site) template() []byte {
	return s.json(fmt.Sprintf(`
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxTemplate
metadata: {name: %s}
spec: {template: {spec: {containers: [{name: main, image: busybox}]}}}
`, s.name))
}

func (s *site) json(text string) []byte {
	s.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	must.Succeed(s, err)
	return data
}

func (s *site) object(kind string, revision int32, manifest []byte) *federationv1.CatalogObject {
	o := &federationv1.CatalogObject{Kind: kind, Namespace: s.Namespace, Name: "shell", Revision: revision, Manifest: manifest}
	if kind == "SandboxTemplate" {
		o.Namespace, o.Name = "", s.name
	}
	return o
}

func (s *site) call(c *federationv1.CatalogCall) *federationv1.CatalogResult {
	s.Helper()
	if c.GetCatalog() == "" {
		c.Catalog = "c1"
	}
	got, err := s.writer.Catalog(s.Context(), c)
	must.Succeed(s, err)
	return got
}

// apply sends the Env, and returns what became of it.
func (s *site) apply(revision int32, image string) *federationv1.CatalogOutcome {
	s.Helper()
	return s.call(&federationv1.CatalogCall{Mode: federationv1.CatalogCall_APPLY,
		Objects: []*federationv1.CatalogObject{s.object("SandboxEnv", revision, s.env(image, "east"))}}).GetOutcomes()[0]
}

func (s *site) remove(kind string, revision int32) string {
	s.Helper()
	o := s.call(&federationv1.CatalogCall{Mode: federationv1.CatalogCall_APPLY,
		Removed: []*federationv1.CatalogObject{s.object(kind, revision, nil)}}).GetOutcomes()[0]
	return o.GetState().String() + " " + o.GetReason()
}

func (s *site) expect(what string, got *federationv1.CatalogOutcome, state federationv1.CatalogOutcome_State, message string) {
	s.Helper()
	if text := got.GetReason() + ": " + got.GetMessage(); got.GetState() != state || !strings.Contains(text, message) {
		s.Errorf("%s: %s, %s; want %s, %s", what, got.GetState(), text, state, message)
	}
}

func (s *site) image() string { return s.Env("shell").Spec.Overrides.Image }

// I3: a field that a user owns with another value stays, and is told with its owner; nothing else is written then.
func TestAConflictIsKept(t *testing.T) {
	s := newSite(t)
	s.expect("the first", s.apply(1, "one"), federationv1.CatalogOutcome_APPLIED, "")
	c := meta.FindStatusCondition(s.Env("shell").Status.Conditions, v1alpha1.SandboxEnvConditionCatalogued)
	if c == nil || c.Reason != "Applied" || c.Message != "revision 1 of the catalogue" {
		t.Errorf("got %v", c)
	}
	env := s.Env("shell")
	env.Spec.Overrides.Image = "mine"
	s.Must(s.Live.Update(t.Context(), env, client.FieldOwner("kubectl-edit")))
	s.expect("the second", s.apply(2, "two"), federationv1.CatalogOutcome_CONFLICT, `spec.overrides.image: conflict with "kubectl-edit"`)
	if got := s.image(); got != "mine" {
		t.Errorf("the image is %s", got)
	}
	if c := meta.FindStatusCondition(s.Env("shell").Status.Conditions, v1alpha1.SandboxEnvConditionCatalogued); c == nil ||
		c.Reason != "Conflict" {
		t.Errorf("got %v", c)
	}
	applied := s.apply(3, "mine")
	s.expect("with the user's value", applied, federationv1.CatalogOutcome_APPLIED, "")
	if is := s.Env("shell").Generation; is < 2 || applied.GetGeneration() != is {
		t.Errorf("generation %d was told, it is %d", applied.GetGeneration(), is)
	}
}

func TestI4OlderRevisionsAndOtherCatalogues(t *testing.T) {
	s := newSite(t)
	s.expect("the first", s.apply(5, "five"), federationv1.CatalogOutcome_APPLIED, "")
	s.expect("an older one", s.apply(4, "four"), federationv1.CatalogOutcome_REFUSED, "NewerInCluster")
	other := s.call(&federationv1.CatalogCall{Catalog: "c2", Mode: federationv1.CatalogCall_APPLY,
		Objects: []*federationv1.CatalogObject{s.object("SandboxEnv", 9, s.env("nine", "east"))}})
	s.expect("another hub's", other.GetOutcomes()[0], federationv1.CatalogOutcome_REFUSED, "OtherCatalogue")
	gone := s.call(&federationv1.CatalogCall{Catalog: "c2", Mode: federationv1.CatalogCall_APPLY,
		Removed: []*federationv1.CatalogObject{s.object("SandboxEnv", 9, nil)}})
	s.expect("its removal", gone.GetOutcomes()[0], federationv1.CatalogOutcome_REFUSED, "OtherCatalogue")
	foreign := s.call(&federationv1.CatalogCall{Mode: federationv1.CatalogCall_APPLY,
		Objects: []*federationv1.CatalogObject{s.object("SandboxEnv", 9, s.env("nine", "west"))}})
	s.expect("another cluster's part", foreign.GetOutcomes()[0], federationv1.CatalogOutcome_REFUSED, "want east alone")
	if got := s.image(); got != "five" {
		t.Errorf("the image is %s", got)
	}
}

// A field that the cluster's CRD does not have, as one of an earlier release, is told and not dropped. Nothing of the change is written.
func TestAFieldThatTheCRDLacks(t *testing.T) {
	s := newSite(t)
	s.expect("the first", s.apply(1, "one"), federationv1.CatalogOutcome_APPLIED, "")
	later := []byte(strings.Replace(string(s.env("two", "east")), `"mode":`, `"mood":"good","mode":`, 1))
	for _, mode := range []federationv1.CatalogCall_Mode{federationv1.CatalogCall_APPLY, federationv1.CatalogCall_PLAN} {
		got := s.call(&federationv1.CatalogCall{Mode: mode, Objects: []*federationv1.CatalogObject{s.object("SandboxEnv", 2, later)}})
		s.expect(mode.String(), got.GetOutcomes()[0], federationv1.CatalogOutcome_REFUSED, "spec.mood: field not declared in schema")
		s.expect(mode.String(), got.GetOutcomes()[0], federationv1.CatalogOutcome_REFUSED, "upgrade its worker's chart")
	}
	if got := s.image(); got != "one" {
		t.Errorf("the image is %s", got)
	}
}

// A read without rights is refused, and is no absence. A namespace that the worker does not serve has no part of the cluster.
func TestRead(t *testing.T) {
	s := newSite(t)
	s.expect("it is applied", s.apply(1, "one"), federationv1.CatalogOutcome_APPLIED, "")
	read := func() *federationv1.CatalogOutcome {
		return s.call(&federationv1.CatalogCall{Mode: federationv1.CatalogCall_READ,
			Objects: []*federationv1.CatalogObject{s.object("SandboxEnv", 0, nil)}}).GetOutcomes()[0]
	}
	s.expect("with all rights", read(), federationv1.CatalogOutcome_FOUND, "")
	cfg := rest.CopyConfig(s.Config())
	cfg.Impersonate.UserName = "without-rights"
	for _, row := range []struct {
		what, served string
		want         federationv1.CatalogOutcome_State
		message      string
	}{
		{"without rights", s.Namespace, federationv1.CatalogOutcome_REFUSED, "Forbidden: "},
		{"in a namespace that is not served", "another", federationv1.CatalogOutcome_ABSENT, ""},
	} {
		w, err := New(Options{ClusterID: "east", Config: cfg, Namespaces: []string{row.served}, Time: apitime.New(clock.RealClock{}),
			Log: testlog.New(t)})
		must.Succeed(t, err)
		s.writer = w
		s.expect(row.what, read(), row.want, row.message)
	}
}

// What users have made or own stays, and a template while an Env names it; the catalogue's own goes.
func TestRemove(t *testing.T) {
	s := newSite(t)
	s.call(&federationv1.CatalogCall{Mode: federationv1.CatalogCall_APPLY,
		Objects: []*federationv1.CatalogObject{s.object("SandboxTemplate", 1, s.template())}})
	users := &v1alpha1.SandboxEnv{}
	must.Succeed(t, yaml.Unmarshal(s.env("mine", "east"), users))
	s.Must(s.Live.Create(t.Context(), users))
	for _, step := range []struct{ what, kind, want string }{
		{"a user's Env", "SandboxEnv", "REFUSED NotTheCatalogues"},
		{"a template in use", "SandboxTemplate", "PENDING InUse"},
	} {
		if got := s.remove(step.kind, 2); got != step.want {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
	}
	s.expect("the same as the user's", s.apply(1, "mine"), federationv1.CatalogOutcome_APPLIED, "")
	if got, want := s.remove("SandboxEnv", 2), "REFUSED Owned"; got != want {
		t.Errorf("what a user owns as well: %s, want %s", got, want)
	}
	s.Must(s.Live.Delete(t.Context(), users))
	s.expect("the catalogue's own", s.apply(2, "own"), federationv1.CatalogOutcome_APPLIED, "")
	held := s.call(&federationv1.CatalogCall{Mode: federationv1.CatalogCall_LIST}).GetHeld()
	found := 0
	for _, o := range held {
		if o.GetNamespace() == s.Namespace && o.GetRevision() == 2 || o.GetName() == s.name && o.GetRevision() == 1 {
			found++
		}
	}
	if found != 2 {
		t.Errorf("held: %v", held)
	}
	for _, kind := range []string{"SandboxEnv", "SandboxTemplate"} {
		if got, want := s.remove(kind, 3), "REMOVED "; got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
}

// A dry run tells what would change, field by field, and changes nothing.
func TestPlan(t *testing.T) {
	s := newSite(t)
	plan := func(image string) *federationv1.CatalogOutcome {
		return s.call(&federationv1.CatalogCall{Mode: federationv1.CatalogCall_PLAN,
			Objects: []*federationv1.CatalogObject{s.object("SandboxEnv", 2, s.env(image, "east"))}}).GetOutcomes()[0]
	}
	s.expect("a new one", plan("one"), federationv1.CatalogOutcome_WOULD_CREATE, "")
	s.expect("it is applied", s.apply(1, "one"), federationv1.CatalogOutcome_APPLIED, "")
	s.expect("the same", plan("one"), federationv1.CatalogOutcome_UNCHANGED, "")
	got := plan("two")
	s.expect("another one", got, federationv1.CatalogOutcome_WOULD_CHANGE, "")
	if text := strings.Join(got.GetChanges(), "; "); text != `spec.overrides.image: "one" -> "two"` {
		t.Errorf("got %s", text)
	}
	if got := s.image(); got != "one" {
		t.Errorf("the image is %s", got)
	}
}
