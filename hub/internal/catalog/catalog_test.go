// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
)

const envText = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: demo, namespace: default}
spec:
  templateRef: {name: base}
  mode: WarmPool
  clusters:
    - {clusterID: east, members: [{name: pool, config: {instanceType: s, multiplier: 1}}]}
    - {clusterID: west, members: [{name: pool, config: {instanceType: s, multiplier: 1}}]}
`

const templateText = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxTemplate
metadata: {name: base}
spec: {template: {spec: {containers: [{name: sandbox, image: busybox}]}}}
`

// has are the objects of a cluster with their revisions.
func has(c *workertest.Catalog) string {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	var out []string
	for _, key := range []string{"SandboxTemplate//base", "SandboxEnv/default/demo"} {
		if o := c.Held[key]; o != nil {
			out = append(out, fmt.Sprintf("%s@%d", o.GetName(), o.GetRevision()))
		}
	}
	return strings.Join(out, " ")
}

type world struct {
	*Service
	*testing.T
	federation *workertest.Federation
	clusters   map[string]*workertest.Catalog
	away       map[string]bool
	store      store.Store
}

// newWorld runs a catalogue with clusters east and west until the test ends.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, federation: workertest.New(t, map[string]int32{"east": 1, "west": 1}), clusters: map[string]*workertest.Catalog{},
		away: map[string]bool{}}
	w.store = w.federation.Registry
	for _, id := range []string{"east", "west"} {
		w.clusters[id] = workertest.NewCatalog()
		w.federation.Workers[id].OnCall = w.clusters[id].Call
	}
	w.restart()
	return w
}

// restart begins with a new Service on the store, as a hub does.
func (w *world) restart() {
	w.Helper()
	s, err := New(w.Context(), Options{
		Store: w.store, Fleet: w.federation.Fleet, Calls: w.federation, Clock: clock.RealClock{}, Log: logr.Discard(),
		Connected: func(id string) bool { return !w.away[id] },
	})
	must.Succeed(w, err)
	w.Service = s
}

// setBack restarts on a store that has nothing but the catalogue's id, as a restored backup of its first moment.
func (w *world) setBack() {
	w.Helper()
	back := workertest.OpenStore(w.T, "back")
	_, err := back.Commit(w.Context(), store.Txn{Puts: []store.Put{{Key: idKey, Value: []byte(w.id)}}})
	must.Succeed(w, err)
	w.store = back
	w.restart()
}

func (w *world) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Service.Run(ctx) }()
	return func() { cancel(); <-done }
}

func (w *world) admin() context.Context {
	return principal.With(w.Context(), principal.Principal{Name: "ann", AllTeams: true, AllNamespaces: true})
}

func object(t *testing.T, text string) *structpb.Struct {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	must.Succeed(t, err)
	out := &structpb.Struct{}
	must.Succeed(t, out.UnmarshalJSON(data))
	return out
}

func (w *world) putEnv(text string) error {
	return w.PutEnv(w.admin(), &sandboxv1.PutEnvRequest{Namespace: "default", Name: "demo", Env: object(w.T, text)})
}

func (w *world) putTemplate() {
	w.Helper()
	_, err := Templates{Service: w.Service}.PutTemplate(w.admin(), &sandboxv1.PutTemplateRequest{Name: "base", Template: object(w.T,
		templateText)})
	must.Succeed(w, err)
}

func (w *world) expect(what, east, west string) {
	w.Helper()
	time.Sleep(90 * time.Second) // of the bubble's clock: longer than every interval of a deliverer
	synctest.Wait()
	if e, x := has(w.clusters["east"]), has(w.clusters["west"]); e != east || x != west {
		w.Errorf("%s: east has %q, west %q; want %q, %q", what, e, x, east, west)
	}
}

func (w *world) entry() string {
	w.Helper()
	entry := w.Entry(w.admin(), segment.Key{Namespace: "default", Name: "demo"})
	out := fmt.Sprintf("%d by %s", entry.GetRevision(), entry.GetChangedBy())
	for _, c := range entry.GetClusters() {
		out += fmt.Sprintf(" %s:%s@%d", c.GetClusterId(), c.GetState(), c.GetRevision())
		if c.GetReason() != "" {
			out += "(" + c.GetReason() + ")"
		}
	}
	return out
}

// Each cluster gets its own part with the templates that it names; one that was away gets the latest; what is named no more goes.
func TestDeliver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.away["west"] = true
		stop := w.run()
		w.putTemplate()
		must.Succeed(t, w.putEnv(envText))
		w.expect("one is away", "base@1 demo@1", "")
		if got, want := w.entry(), "1 by ann east:APPLIED@1 west:PENDING@0(NotDelivered)"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		o, err := manifest.Parse(w.clusters["east"].Held["SandboxEnv/default/demo"].GetManifest())
		must.Succeed(t, err)
		if got := strings.Join(o.Clusters(), " "); got != "east" {
			t.Errorf("east got the segments of %s", got)
		}
		must.Succeed(t, w.putEnv(strings.Replace(envText, "name: pool, config: {instanceType: s", "name: pool, config: {instanceType: m", 2)))
		must.Succeed(t, w.putEnv(envText))
		before := w.clusters["west"].Writes
		stop()
		w.away["west"] = false
		w.restart()
		stop = w.run()
		w.expect("it is back", "base@1 demo@3", "base@1 demo@3")
		if n := w.clusters["west"].Writes - before; n != 2 {
			t.Errorf("%d writes, want the latest of 2 objects", n)
		}
		must.Succeed(t, w.putEnv(envText[:strings.Index(envText, "    - {clusterID: west")]))
		w.expect("west is named no more", "base@1 demo@4", "")
		must.Succeed(t, w.DeleteEnv(w.admin(), &sandboxv1.DeleteEnvRequest{Namespace: "default", Name: "demo"}))
		w.expect("it is removed", "", "")
		stop()
	})
}

// A change wakes the deliverers of the clusters that it concerns, before or after it.
func TestAChangeConcernsItsClustersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, id := range []string{"east", "west", "north"} {
			w.deliverer(id) // does not run
		}
		woken := func(what, want string) {
			t.Helper()
			var got []string
			for _, id := range []string{"east", "north", "west"} {
				select {
				case <-w.wakes[id]:
					got = append(got, id)
				default:
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s: woken are %v, want %s", what, got, want)
			}
		}
		inEast := envText[:strings.Index(envText, "    - {clusterID: west")]
		w.putTemplate()
		woken("a template", "east north west")
		must.Succeed(t, w.putEnv(inEast))
		woken("an Env of east", "east")
		must.Succeed(t, w.putEnv(envText))
		woken("an Env that comes to west", "east west")
		must.Succeed(t, w.putEnv(inEast))
		woken("an Env that leaves west", "east west")
		must.Succeed(t, w.DeleteEnv(w.admin(), &sandboxv1.DeleteEnvRequest{Namespace: "default", Name: "demo"}))
		woken("an Env that is removed", "east")
		must.Succeed(t, w.load(t.Context()))
		woken("all is read anew", "east north west")
		older := store.Event{Entry: store.Entry{
			Key: clusterPrefix + "west", Value: []byte(`{"SandboxEnv/default/demo":{"revision":1}}`), Revision: 99,
		}}
		w.apply([]store.Event{older})
		woken("another replica has told otherwise of west", "west")
		w.apply([]store.Event{older})
		woken("it has told the same again", "")
	})
}

func TestConcerns(t *testing.T) {
	staged := &record{Ref: manifest.Ref{Kind: manifest.EnvKind}, in: sets.New("east"), Rollout: &rollout{in: sets.New("west")}}
	for name, tt := range map[string]struct {
		record *record
		want   string
	}{
		"none":                           {nil, ""},
		"a template":                     {&record{Ref: manifest.Ref{Kind: manifest.TemplateKind}}, "east west north"},
		"an Env":                         {&record{Ref: manifest.Ref{Kind: manifest.EnvKind}, in: sets.New("east")}, "east"},
		"a rollout that has not reached": {staged, "east west"},
	} {
		var got []string
		for _, cluster := range []string{"east", "west", "north"} {
			if tt.record.concerns(cluster) {
				got = append(got, cluster)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: concerns %v, want %s", name, got, tt.want)
		}
	}
}

// What a cluster does not take is told, and sent again.
func TestOutcomesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.clusters["west"].Refuse["demo"] = &federationv1.CatalogOutcome{State: federationv1.CatalogOutcome_CONFLICT, Reason: "Conflict"}
		defer w.run()()
		must.Succeed(t, w.putEnv(envText))
		w.expect("refused", "demo@1", "")
		if got, want := w.entry(), "1 by ann east:APPLIED@1 west:CONFLICT@0(Conflict)"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		w.clusters["west"].Mu.Lock()
		delete(w.clusters["west"].Refuse, "demo")
		w.clusters["west"].Mu.Unlock()
		w.expect("taken", "demo@1", "demo@1")
	})
}

// full is a store whose disk is full while it is told so.
type full struct {
	store.Store
	is atomic.Bool
}

func (f *full) Commit(ctx context.Context, txn store.Txn) (uint64, error) {
	if f.is.Load() {
		return 0, syscall.ENOSPC
	}
	return f.Store.Commit(ctx, txn)
}

// A full disk refuses changes, and takes nothing from clusters. What became of a change that was stored before is told once there is room.
func TestAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		disk := &full{Store: w.store}
		w.store = disk
		w.restart()
		defer w.run()()
		w.putTemplate()
		must.Succeed(t, w.putEnv(envText))
		w.expect("delivered", "base@1 demo@1", "base@1 demo@1")
		later := strings.Replace(envText, "instanceType: s", "instanceType: m", 2)
		disk.is.Store(true)
		var refused *problem.Error
		if err := w.putEnv(later); !errors.As(err, &refused) || refused.Reason != problem.Unavailable ||
			!strings.Contains(refused.Message, "no space left") {
			t.Errorf("a change: %v", err)
		}
		err := w.DeleteEnv(w.admin(), &sandboxv1.DeleteEnvRequest{Namespace: "default", Name: "demo"})
		if !errors.As(err, &refused) || refused.Reason != problem.Unavailable {
			t.Errorf("a removal: %v", err)
		}
		w.expect("the disk is full", "base@1 demo@1", "base@1 demo@1")
		if got, want := w.entry(), "1 by ann east:APPLIED@1 west:APPLIED@1"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}

		disk.is.Store(false)
		must.Succeed(t, w.putEnv(later))
		disk.is.Store(true)
		w.expect("it is full again", "base@1 demo@2", "base@1 demo@2")
		disk.is.Store(false)
		w.expect("there is room", "base@1 demo@2", "base@1 demo@2")
		if got, want := w.entry(), "2 by ann east:APPLIED@2 west:APPLIED@2"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// I4, I5: a store that was set back removes nothing, and does not replace what is later; the next put does.
func TestI5AStoreThatWasSetBackRemovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		w.putTemplate()
		must.Succeed(t, w.putEnv(envText))
		must.Succeed(t, w.putEnv(strings.Replace(envText, "instanceType: s", "instanceType: m", 2)))
		w.expect("delivered", "base@1 demo@2", "base@1 demo@2")
		stop()
		w.setBack()
		stop = w.run()
		w.expect("nothing is known", "base@1 demo@2", "base@1 demo@2")
		w.putTemplate()
		must.Succeed(t, w.putEnv(envText))
		w.expect("the older one waits", "base@1 demo@2", "base@1 demo@2")
		if got := w.entry(); !strings.Contains(got, "NewerInCluster") {
			t.Errorf("got %s", got)
		}
		must.Succeed(t, w.putEnv(envText))
		w.expect("the next one holds", "base@1 demo@3", "base@1 demo@3")
		stop()
	})
}

// I4: revisions that a store which was set back has used again are other manifests. Clusters get them; what they were seen to take is not
// sent again.
func TestI4ARevisionThatIsUsedAgainIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		w.putTemplate()
		must.Succeed(t, w.putEnv(envText))
		must.Succeed(t, w.putEnv(strings.Replace(envText, "instanceType: s", "instanceType: m", 2)))
		w.expect("delivered", "base@1 demo@2", "base@1 demo@2")
		stop()
		w.setBack()
		w.putTemplate()
		must.Succeed(t, w.putEnv(envText))
		must.Succeed(t, w.putEnv(strings.Replace(envText, "instanceType: s", "instanceType: l", 2))) // before the clusters were asked
		stop = w.run()
		w.expect("the number is the same", "base@1 demo@2", "base@1 demo@2")
		for id, size := range w.sizes() {
			if size != "l" {
				t.Errorf("%s has kept size %s", id, size)
			}
		}
		if got, want := w.entry(), "2 by ann east:APPLIED@2 west:APPLIED@2"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		stop()
		writes := w.clusters["west"].Writes
		w.restart()
		stop = w.run()
		w.expect("nothing has changed", "base@1 demo@2", "base@1 demo@2")
		if n := w.clusters["west"].Writes - writes; n != 0 {
			t.Errorf("%d writes of what west has taken", n)
		}
		stop()
	})
}

// sizes are the instance types of the Env's parts, by cluster.
func (w *world) sizes() map[string]string {
	out := map[string]string{}
	for id, c := range w.clusters {
		c.Mu.Lock()
		for _, size := range []string{"s", "m", "l"} {
			if strings.Contains(string(c.Held["SandboxEnv/default/demo"].GetManifest()), `"instanceType":"`+size+`"`) {
				out[id] += size
			}
		}
		c.Mu.Unlock()
	}
	return out
}

// A hub with another store is another catalogue: equal revisions of it are refused, and told.
func TestAnotherCataloguesObjectsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		must.Succeed(t, w.putEnv(envText))
		w.expect("delivered", "demo@1", "demo@1")
		stop()
		w.store = workertest.OpenStore(t, "another")
		w.restart()
		stop = w.run()
		must.Succeed(t, w.putEnv(strings.Replace(envText, "instanceType: s", "instanceType: m", 2)))
		w.expect("refused", "demo@1", "demo@1")
		for id, size := range w.sizes() {
			if size != "s" {
				t.Errorf("%s has size %s", id, size)
			}
		}
		if got, want := w.entry(), "1 by ann east:REFUSED@0(OtherCatalogue) west:REFUSED@0(OtherCatalogue)"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		stop()
	})
}

func TestPutRefuses(t *testing.T) {
	w := newWorld(t)
	must.Succeed(t, w.putEnv(envText))
	for _, tt := range []struct{ name, from, to, want string }{
		{"a schema", "WarmPool", "Cold", `spec.mode: Unsupported value: "Cold"`},
		{"an unknown field", "mode:", "mood:", `unknown field "spec.mood"`},
		{"another name", "name: demo", "name: other", "want sandboxenv default/demo, as in the path"},
		{"a reserved key", "namespace: default", "namespace: default, labels: {agentbox.io/x: y}", "agentbox.io/x: reserved for Atoll"},
		{"a plan", "namespace: default", `namespace: default, annotations: {agentbox.navix.sh/rollout: "stages: [[north]]"}`,
			`stages[0]: "north" is not valid, want clusters of the Env, each in one stage: east, west`},
		{"a size", "namespace: default", "namespace: default, annotations: {x: " + strings.Repeat("y", maxManifest) + "}",
			"at most 131072 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := w.putEnv(strings.Replace(envText, tt.from, tt.to, 1))
			var p *problem.Error
			if !errors.As(err, &p) || p.Reason != problem.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			if slices.ContainsFunc(p.Fields, func(f problem.Field) bool { return f.Field == "<nil>" }) {
				t.Errorf("a field without a name: %v", p.Fields)
			}
		})
	}
	err := w.PutEnv(w.admin(), &sandboxv1.PutEnvRequest{Namespace: "default", Name: "demo", Env: object(t, envText), Revision: 7})
	if err == nil || !strings.Contains(err.Error(), `revision: "7" is not valid`) {
		t.Errorf("another revision: %v", err)
	}
}

// An Env of what is not there is taken, because it may come; its author is told.
func TestWarnings(t *testing.T) {
	w := newWorld(t)
	key := segment.Key{Namespace: "default", Name: "demo"}
	warned := func(want ...string) {
		t.Helper()
		entry, err := w.FullEntry(w.admin(), key)
		must.Succeed(t, err)
		if !slices.Equal(entry.GetWarnings(), want) {
			t.Errorf("warned %q, want %q", entry.GetWarnings(), want)
		}
	}
	must.Succeed(t, w.putEnv(envText))
	warned(`spec.templateRef.name: the catalogue has no template "base"; a cluster starts its Pods once it has one`)
	w.putTemplate()
	warned()
	must.Succeed(t, w.putEnv(strings.Replace(envText, "clusterID: west", "clusterID: vest", 1)))
	warned(`spec.clusters: no cluster "vest" has joined; the hub has east, west`)
	// A caller that is bound to vest for another Env is warned of nothing there, and sees no cluster by it.
	bound := principal.Of(&access.Identity{Name: "bob"}, access.Permission{}, access.Grant{Scopes: []access.Scope{
		{AllNamespaces: true, AllTeams: true, Clusters: []string{"east"}},
		{Namespaces: []string{"elsewhere"}, AllTeams: true, Clusters: []string{"vest", "west"}},
	}})
	entry, err := w.FullEntry(principal.With(t.Context(), bound), key)
	must.Succeed(t, err)
	if len(entry.GetWarnings()) > 0 {
		t.Errorf("a caller of east is warned %q", entry.GetWarnings())
	}
}

func TestRevisions(t *testing.T) {
	w := newWorld(t)
	for i := range 12 {
		must.Succeed(t, w.putEnv(strings.Replace(envText, "name: base", fmt.Sprintf("name: base%d", i), 1)))
	}
	got, err := w.ListEnvRevisions(w.admin(), &sandboxv1.ListEnvRevisionsRequest{Namespace: "default", Name: "demo"})
	must.Succeed(t, err)
	if len(got.GetRevisions()) != 10 || got.GetRevisions()[0].GetRevision() != 12 || got.GetRevisions()[0].GetChangedBy() != "ann" {
		t.Fatalf("got %v", got)
	}
	if c := got.GetRevisions()[0].GetChanges(); len(c) != 1 || c[0] != `spec.templateRef.name: "base10" -> "base11"` {
		t.Errorf("got %v", c)
	}
}

// A caller that is bound to a cluster learns nothing of others from a rollout, a plan, an import or what was before; also where it may see
// another cluster for other Envs.
func TestOtherClustersAreNotShown(t *testing.T) {
	west := access.Scope{AllNamespaces: true, AllTeams: true, Clusters: []string{"west"}}
	for who, scopes := range map[string][]access.Scope{
		"bound to west": {west},
		"and to east for other Envs": {west, {Namespaces: []string{"elsewhere"}, AllTeams: true, Clusters: []string{"east"}},
			{Namespaces: []string{"default"}, Envs: []string{"default/mine"}, AllTeams: true}},
	} {
		t.Run(who, func(t *testing.T) {
			bound := principal.Of(&access.Identity{Name: "bob"}, access.Permission{}, access.Grant{Scopes: scopes})
			otherClustersAreNotShown(newWorld(t), principal.With(t.Context(), bound))
		})
	}
}

// otherClustersAreNotShown checks that a caller which may see the part of demo in west learns nothing of east.
func otherClustersAreNotShown(w *world, bound context.Context) {
	t := w.T
	const namespace, name = "default", "demo"
	tellsNothing := func(what string, shown fmt.Stringer, err error) {
		t.Helper()
		if must.Succeed(t, err); strings.Contains(shown.String(), "east") {
			t.Errorf("%s shows east: %s", what, shown)
		}
	}
	forbidden := func(what string, err error, want string) {
		t.Helper()
		if err == nil || problem.FromError(err).Reason != problem.Forbidden || problem.FromError(err).Message != want {
			t.Errorf("%s: %v, want FORBIDDEN: %s", what, err, want)
		}
	}
	const hidden = "Env default/demo has parts in clusters that are not open to you"
	must.Succeed(t, w.putEnv(envText))
	w.change("{stages: [[east], [west]], onFailure: rollback, abortOn: {notReadyFor: 5m}}", "m")
	rollout, err := w.GetRollout(bound, &sandboxv1.GetRolloutRequest{Namespace: namespace, Name: name})
	tellsNothing("a rollout", rollout, err)
	entry, err := w.FullEntry(bound, segment.Key{Namespace: namespace, Name: name})
	tellsNothing("an entry", entry, err)
	_, err = w.PlanEnv(bound, &sandboxv1.PlanEnvRequest{Namespace: namespace, Name: name})
	forbidden("a plan", err, hidden)
	err = w.PutEnv(bound, &sandboxv1.PutEnvRequest{Namespace: namespace, Name: name, Env: object(t, envText)})
	forbidden("a change that names east", err, "the part of Env default/demo in cluster east is not open to you")

	before, after, found := strings.Cut(envText, "    - {clusterID: east")
	_, after, _ = strings.Cut(after, "\n")
	if !found {
		t.Fatal("the Env has no segment of east")
	}
	// East had a part before the rollout, and has it until the rollout is over.
	ofWest := strings.Replace(before+after, "namespace: default",
		`namespace: default, annotations: {agentbox.navix.sh/rollout: "{stages: [[west]]}"}`, 1)
	must.Succeed(t, w.putEnv(ofWest))
	revisions, err := w.ListEnvRevisions(bound, &sandboxv1.ListEnvRevisionsRequest{Namespace: namespace, Name: name})
	tellsNothing("the revisions", revisions, err)
	if all := revisions.GetRevisions(); len(all) != 3 || all[0].GetManifest() == nil || all[1].GetManifest() != nil {
		t.Errorf("the revisions are %v, want the last one with its manifest", all)
	}

	w.federation.Workers["east"].OnCall = func(context.Context, *federationv1.Dispatch) (*federationv1.Answer, error) {
		t.Error("a plan or an import asks east")
		return nil, problem.New(problem.Unavailable, "east")
	}
	for what, env := range map[string]*structpb.Struct{"a plan": nil, "a plan of another": object(t, ofWest)} {
		_, err = w.PlanEnv(bound, &sandboxv1.PlanEnvRequest{Namespace: namespace, Name: name, Env: env})
		forbidden(what, err, hidden)
	}
	err = w.PutEnv(bound, &sandboxv1.PutEnvRequest{Namespace: namespace, Name: name, Env: object(t, before+after)})
	forbidden("a change that ends the rollout", err, hidden)
	forbidden("a removal", w.DeleteEnv(bound, &sandboxv1.DeleteEnvRequest{Namespace: namespace, Name: name}), hidden)
	_, err = w.ControlRollout(bound, &sandboxv1.ControlRolloutRequest{
		Namespace: namespace, Name: name, Action: sandboxv1.ControlRolloutRequest_RESUME,
	})
	forbidden("a resume", err, hidden)

	r, err := w.find(w.admin(), envRef(namespace, name))
	must.Succeed(t, err)
	over := *r.Rollout
	over.State = sandboxv1.Rollout_DONE
	must.Succeed(t, w.move(w.admin(), r, over, false))
	plan, err := w.PlanEnv(bound, &sandboxv1.PlanEnvRequest{Namespace: namespace, Name: name})
	tellsNothing("a plan", plan, err)
	if len(plan.GetClusters()) != 1 {
		t.Errorf("the plan is of %v, want west alone", plan.GetClusters())
	}
	_, err = w.ImportEnv(bound, &sandboxv1.ImportEnvRequest{Namespace: namespace, Name: "other", DryRun: true})
	workertest.WantReason(t, err, problem.NotFound)

	must.Succeed(t, w.putEnv(strings.Replace(ofWest, "name: base", "name: other", 1)))
	r, err = w.find(w.admin(), envRef(namespace, name))
	must.Succeed(t, err)
	over = *r.Rollout // as after the undo of one with east
	over.State, over.Plan.Stages = sandboxv1.Rollout_UNDONE, [][]string{{"east"}, {"west"}}
	must.Succeed(t, w.move(w.admin(), r, over, false))
	rollout, err = w.ControlRollout(bound, &sandboxv1.ControlRolloutRequest{
		Namespace: namespace, Name: name, Action: sandboxv1.ControlRolloutRequest_UNDO, ToRevision: 3,
	})
	tellsNothing("an undo", rollout, err)
}

// A replica that has heard of no change yet shows and changes what another has written.
func TestACallSeesWhatAnotherReplicaWrote(t *testing.T) {
	w := newWorld(t)
	w.store = store.NewMemory()
	w.restart()
	one := w.Service
	w.restart() // another replica, which follows nothing
	must.Succeed(t, w.putEnv(envText))
	for revision := range int32(3) {
		w.Service, one = one, w.Service
		got, err := w.FullEntry(w.admin(), segment.Key{Namespace: "default", Name: "demo"})
		must.Succeed(t, err)
		if got.GetRevision() != revision+1 {
			t.Errorf("shown is revision %d, want %d", got.GetRevision(), revision+1)
		}
		must.Succeed(t, w.putEnv(strings.Replace(envText, "name: base", fmt.Sprintf("name: base%d", revision), 1)))
	}
	w.Service = one
	got, err := w.ListEnvRevisions(w.admin(), &sandboxv1.ListEnvRevisionsRequest{Namespace: "default", Name: "demo"})
	must.Succeed(t, err)
	if len(got.GetRevisions()) != 4 {
		t.Errorf("got %v", got)
	}
}

// What is written while everything is read stays; what another replica has removed before goes.
func TestAWriteDuringAReadHolds(t *testing.T) {
	w := newWorld(t)
	s := &meanwhile{Shared: store.NewMemory()}
	w.store = s
	w.restart()
	must.Succeed(t, w.putEnv(envText))
	s.afterRange = func() error {
		other := strings.Replace(envText, "name: demo", "name: other", 1)
		return errors.Join(w.putEnv(strings.ReplaceAll(envText, "instanceType: s", "instanceType: m")),
			w.PutEnv(w.admin(), &sandboxv1.PutEnvRequest{Namespace: "default", Name: "other", Env: object(t, other)}))
	}
	must.Succeed(t, w.load(t.Context()))
	records := w.state.Load().records
	demo, other := records[keyOf(envRef("default", "demo"))], records[keyOf(envRef("default", "other"))]
	if s.afterRange != nil || demo == nil || demo.Revision != 2 || other == nil {
		t.Errorf("after the read there are %+v and %+v", demo, other)
	}
	_, err := s.Commit(t.Context(), store.Txn{Deletes: []string{objectPrefix + keyOf(envRef("default", "other"))}})
	must.Succeed(t, err)
	must.Succeed(t, w.load(t.Context()))
	if left := w.state.Load().records; len(left) != 1 {
		t.Errorf("after the removal there are %v", left)
	}
}

// A stage begins when the one before is ready; one that fails takes everything back; a restart changes nothing.
func TestRollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		must.Succeed(t, w.putEnv(envText))
		w.expect("the first one has no stages", "demo@1", "demo@1")
		const plan = "{stages: [[east], [west]], onFailure: rollback, abortOn: {notReadyFor: 5m}}"
		w.federation.Report("east", active("pool", federationv1.MemberState_MISSING))
		w.change(plan, "m")
		w.expect("east is not ready", "demo@2", "demo@1")
		if r := w.rollout(); r.GetReason() != "StageNotReady" || r.GetMessage() != "east: pool is Missing" {
			t.Errorf("a stage that waits does not say for what: %v", r)
		}
		stop()
		w.restart()
		stop = w.run()
		w.expect("nor after a restart", "demo@2", "demo@1")
		w.federation.Report("east", active("pool", federationv1.MemberState_ACTIVE))
		w.expect("east is ready", "demo@2", "demo@2")
		if r := w.rollout(); r.GetState() != sandboxv1.Rollout_DONE {
			t.Errorf("got %v", r)
		}
		w.federation.Report("east", active("pool", federationv1.MemberState_MISSING))
		w.change(plan, "l")
		w.expect("east breaks", "demo@3", "demo@2")
		time.Sleep(5 * time.Minute)
		w.expect("everything goes back", "demo@4", "demo@4")
		if r := w.rollout(); r.GetState() != sandboxv1.Rollout_UNDONE || r.GetReason() != "StageNotReady" ||
			r.GetStages()[0].GetState() != "Undone" || r.GetStages()[1].GetState() != "NotBegun" {
			t.Errorf("got %v", r)
		}
		if err := w.undo(0); err == nil || !strings.Contains(err.Error(), "revision 4 is an undo itself; there are: 3, 2, 1") {
			t.Errorf("an undo of what went back: %v", err)
		}
		w.expect("what failed stays away", "demo@4", "demo@4")
		stop()
	})
}

func (w *world) undo(to int32) error {
	_, err := w.ControlRollout(w.admin(), &sandboxv1.ControlRolloutRequest{
		Namespace: "default", Name: "demo", Action: sandboxv1.ControlRolloutRequest_UNDO, ToRevision: to,
	})
	return err
}

// An undo gives every cluster what it had before the rollout, also where another one was half way. A second one has to name a revision.
func TestUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.run()()
		sized := func(what, size, has string) {
			t.Helper()
			w.expect(what, has, has)
			for id, got := range w.sizes() {
				if got != size {
					t.Errorf("%s: %s has size %s, want %s", what, id, got, size)
				}
			}
		}
		must.Succeed(t, w.putEnv(envText))
		sized("the first", "s", "demo@1")
		w.federation.Report("east", active("pool", federationv1.MemberState_MISSING))
		const plan = "{stages: [[east], [west]]}"
		w.change(plan, "m")
		w.expect("half way", "demo@2", "demo@1")
		w.change(plan, "l")
		w.expect("another one is half way", "demo@3", "demo@1")
		must.Succeed(t, w.undo(0))
		sized("both are undone", "s", "demo@4")
		if err := w.undo(0); err == nil || !strings.Contains(err.Error(), "--to-revision") {
			t.Errorf("an undo of an undo: %v", err)
		}
		must.Succeed(t, w.undo(2))
		sized("one that is named", "m", "demo@5")
		must.Succeed(t, w.putEnv(strings.ReplaceAll(envText, "instanceType: s", "instanceType: l")))
		sized("without stages", "l", "demo@6")
		must.Succeed(t, w.undo(0))
		sized("the one before", "m", "demo@7")
		if err := w.undo(0); err == nil {
			t.Error("the undo of a change without stages was undone")
		}
	})
}

// I4: an undo in a store that was set back has a later revision than the clusters, and they get it.
func TestI4AnUndoInAStoreThatWasSetBackIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		put := func(size string) {
			must.Succeed(t, w.putEnv(strings.ReplaceAll(envText, "instanceType: s", "instanceType: "+size)))
		}
		stop := w.run()
		for _, size := range []string{"s", "m", "s", "l"} {
			put(size)
		}
		w.expect("delivered", "demo@4", "demo@4")
		stop()
		w.setBack()
		put("s")
		put("m")
		defer w.run()()
		w.expect("the earlier ones wait", "demo@4", "demo@4")
		must.Succeed(t, w.undo(0))
		w.expect("undone", "demo@5", "demo@5")
		for id, size := range w.sizes() {
			if size != "s" {
				t.Errorf("%s has size %s", id, size)
			}
		}
	})
}

// I10: what became of the catalogue in a forgotten cluster is removed, so that tombstones go in time.
func TestI10AForgottenClusterKeepsNoTombstones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		must.Succeed(t, w.putEnv(envText))
		w.expect("delivered", "demo@1", "demo@1")
		stop()
		_, err := w.federation.Fleet.Drain(t.Context(), "west")
		must.Succeed(t, err)
		_, err = w.federation.Fleet.Forget(t.Context(), "west")
		must.Succeed(t, err)
		must.Succeed(t, w.DeleteEnv(w.admin(), &sandboxv1.DeleteEnvRequest{Namespace: "default", Name: "demo"}))
		time.Sleep(tombstones) // while no hub runs; because a month of its ticks takes long
		w.restart()
		stop = w.run()
		w.expect("west keeps what it has", "", "demo@1")
		if n, all := len(w.state.Load().records), w.state.Load().statuses; n != 0 || all["west"] != nil {
			t.Errorf("%d tombstones are kept; of clusters: %v", n, all)
		}
		if _, ok, err := w.store.Get(t.Context(), clusterPrefix+"west"); ok || err != nil {
			t.Errorf("the store has west's entry: %t, %v", ok, err)
		}
		stop()
	})
}

// I4: a change that is put during a rollout leaves what the clusters have of the earlier one until their stage begins.
func TestI4AChangeDuringARollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.run()()
		must.Succeed(t, w.putEnv(envText))
		w.expect("the first", "demo@1", "demo@1")
		w.federation.Report("east", active("pool", federationv1.MemberState_MISSING))
		w.federation.Report("west", active("pool", federationv1.MemberState_MISSING))
		w.change("{stages: [[east], [west]]}", "m")
		w.expect("east is not ready", "demo@2", "demo@1")
		w.change("{stages: [[west], [east]]}", "l")
		w.expect("west is not ready", "demo@2", "demo@3")
		if got, want := w.entry(), "3 by ann east:PENDING@2(NotDelivered) west:APPLIED@3"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		w.federation.Report("west", active("pool", federationv1.MemberState_ACTIVE))
		w.expect("west is ready", "demo@3", "demo@3")
	})
}

// A pool that is not as its Env asks gets no claims, which a user must know before the change.
func TestAfterChange(t *testing.T) {
	for path, stops := range map[string]bool{
		"spec.templateRef.name": true,
		"spec.clusters[east].members[demo-east].config.inlineResources.requests.cpu": true,
		"spec.clusters[east].members[demo-east].config.instanceType":                 true,
		"spec.clusters[east].members[demo-east].config.priority":                     false,
		"spec.overrides.podCreationImagePolicy":                                      false,
	} {
		if got := afterChange(path); strings.Contains(got, "gets no claims") != stops {
			t.Errorf("%s: %s", path, got)
		}
	}
}
