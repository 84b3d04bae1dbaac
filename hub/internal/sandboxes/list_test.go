// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/listing"
	"navix.sh/atoll/pkg/problem"
)

// shelf returns lists of ended sandboxes like a worker that reads so many records per page, and leaves out every other one.
type shelf struct {
	cluster string
	ids     []string
	scan    int
	asked   *sandboxv1.ListSandboxesRequest
}

func (s *shelf) list(_ context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
	s.asked = d.GetList()
	out := &sandboxv1.ListSandboxesResponse{}
	at, found := slices.BinarySearch(s.ids, s.asked.GetPageToken())
	if found {
		at++
	}
	for i := at; i < len(s.ids); i++ {
		if i == at+s.scan || len(out.Sandboxes) == int(s.asked.GetPageSize()) {
			out.NextPageToken = s.ids[i-1]
			break
		}
		if i%2 == 0 {
			out.Sandboxes = append(out.Sandboxes, &sandboxv1.Sandbox{Id: s.ids[i], ClusterId: s.cluster, Phase: sandboxv1.Phase_ENDED})
		}
	}
	return &federationv1.Answer{Disposition: federationv1.Disposition_DONE, Result: &federationv1.Answer_List{List: out}}, nil
}

// Short or empty pages of clusters lose no sandbox, of theirs or of others.
func TestEndedSandboxesOfAllClustersArePaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 1, "west": 1})
		shelves := map[string]*shelf{"east": {cluster: "east", scan: 3}, "west": {cluster: "west", scan: 1}}
		var want []string
		for i := range 40 {
			for _, cluster := range []string{"east", "west"} {
				s := shelves[cluster]
				id := fmt.Sprintf("01hzzzzzzzzzzzzzzzzzzz%04d-%s", i*(1+s.scan), cluster)
				if s.ids = append(s.ids, id); i%2 == 0 {
					want = append(want, id)
				}
			}
		}
		for cluster, s := range shelves {
			slices.Sort(s.ids)
			f.Workers[cluster].OnCall = s.list
		}
		slices.Sort(want)
		after := timestamppb.New(time.Now())
		for _, size := range []int32{1, 2, 7, 1000} {
			var got []string
			for r := (&sandboxv1.ListSandboxesRequest{EndedAfter: after, StopReason: "Failed", Pool: "p", PageSize: size}); ; {
				page, err := f.hub.List(t.Context(), r)
				must.Succeed(t, err)
				if len(page.GetSandboxes()) > int(size) {
					t.Fatalf("a page of %d has %d", size, len(page.GetSandboxes()))
				}
				for _, s := range page.GetSandboxes() {
					got = append(got, s.GetId())
				}
				if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("in pages of %d: %d of %d: %v", size, len(got), len(want), got)
			}
		}
		if r := shelves["east"].asked; r.GetStopReason() != "Failed" || r.GetPool() != "p" || r.GetEndedAfter() == nil {
			t.Errorf("the worker is asked %v", r)
		}
	})
}

// A worker whose page token does not advance is named as missing, and its callers do not loop.
func TestAPageTokenMustAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 1})
		token := "01hzzzzzzzzzzzzzzzzzzz0001-east"
		for _, next := range []string{token, "01hzzzzzzzzzzzzzzzzzzz0000-east", "no id"} {
			f.Workers["east"].OnCall = func(context.Context, *federationv1.Dispatch) (*federationv1.Answer, error) {
				return &federationv1.Answer{Disposition: federationv1.Disposition_DONE, Result: &federationv1.Answer_List{
					List: &sandboxv1.ListSandboxesResponse{NextPageToken: next},
				}}, nil
			}
			r := &sandboxv1.ListSandboxesRequest{Phase: sandboxv1.Phase_ENDED}
			r.PageToken = listing.Seal(r, token)
			page, err := f.hub.List(t.Context(), r)
			if err != nil || !slices.Equal(page.GetUnreachableClusters(), []string{"east"}) || page.GetNextPageToken() != "" {
				t.Errorf("after %s: %v, %v", next, page, err)
			}
		}
		_, err := f.hub.List(t.Context(), &sandboxv1.ListSandboxesRequest{Phase: sandboxv1.Phase_RUNNING, StopReason: "Tired", Pool: "P"})
		workertest.WantReason(t, err, problem.Invalid)
		if fields := problem.FromError(err).Fields; len(fields) != 3 {
			t.Errorf("at fault are %v", fields)
		}
	})
}

func TestListMergesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5, "gone": 5})
		var want []string
		for i := 1; i <= 4; i++ {
			for _, c := range []string{"east", "west"} {
				f.create(workertest.Request("", workertest.Prefer(c), func(r *sandboxv1.CreateSandboxRequest) { r.Team = fmt.Sprint("t", i%2) }))
				want = append(want, fmt.Sprintf("01hzzzzzzzzzzzzzzzzzzz%04d-%s", i, c))
			}
		}
		f.Workers["gone"].OnCall = func(ctx context.Context, _ *federationv1.Dispatch) (*federationv1.Answer, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		pages := func(ctx context.Context, size int32) []string {
			var ids []string
			for token := ""; ; {
				began := time.Now()
				page, err := f.hub.List(ctx, &sandboxv1.ListSandboxesRequest{PageSize: size, PageToken: token})
				must.Succeed(t, err)
				if took := time.Since(began); took > listTimeout {
					t.Errorf("a silent cluster delays the list by %s", took)
				}
				if diff := cmp.Diff([]string{"gone"}, page.GetUnreachableClusters()); diff != "" {
					t.Error(diff)
				}
				for _, s := range page.GetSandboxes() {
					ids = append(ids, s.GetId())
				}
				if token = page.GetNextPageToken(); token == "" {
					return ids
				}
			}
		}
		for _, size := range []int32{0, 1, 3, 8} {
			if diff := cmp.Diff(want, pages(t.Context(), size)); diff != "" {
				t.Errorf("pages of %d (-want +got):\n%s", size, diff)
			}
		}
		if got := pages(principal.With(t.Context(), principal.Principal{Team: "t1", AllNamespaces: true}), 3); len(got) != 4 {
			t.Errorf("team t1 sees %v", got)
		}
		if got := pages(principal.With(t.Context(), principal.Principal{AllTeams: true, Namespaces: []string{"prod", "dev"}}), 3); len(got) != 0 {
			t.Errorf("another namespace's caller sees %v", got)
		}
		one, err := f.hub.List(t.Context(), &sandboxv1.ListSandboxesRequest{ClusterId: "west"})
		if err != nil || len(one.GetSandboxes()) != 4 || len(one.GetUnreachableClusters()) != 0 {
			t.Errorf("of one cluster: %v %v", one, err)
		}
	})
}

// A list has the live sandboxes of a cluster whose worker is dead as they were last known, marked with their age.
func TestSandboxesOfADeadWorkerAreListedAsLastKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.known.Run(ctx) }()
		defer func() {
			stop()
			must.Succeed(t, <-done)
		}()
		var made []*sandboxv1.Sandbox
		for i := range 3 {
			made = append(made, f.create(workertest.Request("", workertest.Prefer("west"), func(r *sandboxv1.CreateSandboxRequest) {
				r.Team = fmt.Sprint("t", i%2)
			})))
		}
		f.create(workertest.Request("", workertest.Prefer("east")))
		_, err := f.hub.Release(t.Context(), made[2].GetId())
		must.Succeed(t, err)
		time.Sleep(time.Minute) // the hub lists every cluster
		f.Workers["west"].SetConnected(false)
		time.Sleep(time.Minute)

		list := func(ctx context.Context, r *sandboxv1.ListSandboxesRequest) *sandboxv1.ListSandboxesResponse {
			page, err := f.hub.List(ctx, r)
			must.Succeed(t, err)
			if !slices.Equal(page.GetUnreachableClusters(), []string{"west"}) {
				t.Errorf("unreachable are %v", page.GetUnreachableClusters())
			}
			return page
		}
		whole := list(t.Context(), &sandboxv1.ListSandboxesRequest{})
		if len(whole.GetSandboxes()) != 3 {
			t.Errorf("listed are %v", whole.GetSandboxes())
		}
		for _, s := range whole.GetSandboxes() {
			age := s.GetStaleAge()
			if stale := s.GetClusterId() == "west"; stale != (age != nil) {
				t.Errorf("%s has the age %v", s.GetId(), age)
			} else if stale && (age.AsDuration() < time.Minute || age.AsDuration() > time.Minute+15*time.Second) {
				t.Errorf("%s was last known %s ago", s.GetId(), age.AsDuration())
			}
		}
		first := list(t.Context(), &sandboxv1.ListSandboxesRequest{PageSize: 1, ClusterId: "west"})
		rest := list(t.Context(), &sandboxv1.ListSandboxesRequest{PageSize: 1, ClusterId: "west", PageToken: first.GetNextPageToken()})
		if len(first.GetSandboxes()) != 1 || len(rest.GetSandboxes()) != 1 ||
			first.GetSandboxes()[0].GetId() != made[0].GetId() || rest.GetSandboxes()[0].GetId() != made[1].GetId() {
			t.Errorf("in pages: %v, %v", first, rest)
		}
		for name, page := range map[string]*sandboxv1.ListSandboxesResponse{
			"of a team": list(t.Context(), &sandboxv1.ListSandboxesRequest{ClusterId: "west", Team: "t1"}),
			"for a caller": list(principal.With(t.Context(), principal.Principal{Team: "t1", AllNamespaces: true}),
				&sandboxv1.ListSandboxesRequest{}),
		} {
			if len(page.GetSandboxes()) != 1 || page.GetSandboxes()[0].GetId() != made[1].GetId() {
				t.Errorf("%s: %v", name, page.GetSandboxes())
			}
		}
		if ended := list(t.Context(), &sandboxv1.ListSandboxesRequest{Phase: sandboxv1.Phase_ENDED,
			ClusterId: "west"}); len(ended.GetSandboxes()) > 0 {
			t.Errorf("ended ones are %v", ended.GetSandboxes())
		}

		watching, over := context.WithCancel(t.Context())
		var events []*sandboxv1.SandboxEvent
		err = f.hub.Watch(watching, &sandboxv1.WatchSandboxesRequest{ClusterId: "west"}, func(e *sandboxv1.SandboxEvent) error {
			if events = append(events, e); e.GetType() == sandboxv1.SandboxEvent_BOOKMARK {
				over()
			}
			return nil
		})
		f.hub.CloseWatches()
		if !errors.Is(err, context.Canceled) || len(events) != 3 || !slices.Equal(events[2].GetUnreachableClusters(), []string{"west"}) {
			t.Fatalf("a watch shows %v, %v", events, err)
		}
		for i, e := range events[:2] {
			if e.GetSandbox().GetId() != made[i].GetId() || e.GetSandbox().GetStaleAge().AsDuration() < time.Minute {
				t.Errorf("a watch shows %v, want %s as last known", e, made[i].GetId())
			}
		}

		f.Workers["west"].SetConnected(true)
		page, err := f.hub.List(t.Context(), &sandboxv1.ListSandboxesRequest{ClusterId: "west"})
		must.Succeed(t, err)
		if len(page.GetSandboxes()) != 2 || page.GetSandboxes()[0].GetStaleAge() != nil || len(page.GetUnreachableClusters()) > 0 {
			t.Errorf("once the worker is back: %v", page)
		}
	})
}

// Pages of any order have every sandbox once, and a token is good for its own query alone. A worker that orders by id alone, as those
// of earlier versions do, is named as missing; what it does not select the hub does.
func TestListsInOtherOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 1, "west": 1})
		for c, cluster := range []string{"east", "west"} {
			var all []*sandboxv1.Sandbox
			for i := range 9 {
				all = append(all, &sandboxv1.Sandbox{
					Id: fmt.Sprintf("01hzzzzzzzzzzzzzzzzzzz%04d-%s", i, cluster), ClusterId: cluster,
					Labels: map[string]string{"even": fmt.Sprint(i%2 == 0)}, Team: fmt.Sprint((7*i + c) % 5),
				})
			}
			f.Workers[cluster].OnCall = func(_ context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
				query, faults := listing.Parse(d.GetList())
				must.Succeed(t, faults.Err())
				out := &sandboxv1.ListSandboxesResponse{}
				page := slices.SortedFunc(slices.Values(all), func(a, b *sandboxv1.Sandbox) int { return query.Compare(query.At(a), query.At(b)) })
				page = slices.DeleteFunc(page, func(s *sandboxv1.Sandbox) bool { return !query.Reaches(query.At(s)) })
				if len(page) > query.Size() {
					page = page[:query.Size()]
					out.NextPageToken = query.Token(query.At(page[len(page)-1]))
				}
				for _, s := range page {
					out.Sandboxes = append(out.Sandboxes, proto.CloneOf(s))
				}
				return &federationv1.Answer{Disposition: federationv1.Disposition_DONE, Result: &federationv1.Answer_List{List: out}}, nil
			}
		}
		for _, by := range []string{"", "id desc", "team", "team desc", "clusterId"} {
			for _, size := range []int32{1, 4, 100} {
				var got []string
				r := &sandboxv1.ListSandboxesRequest{
					OrderBy: by, PageSize: size, LabelSelector: "even=true", ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"id"}},
				}
				for {
					page, err := f.hub.List(t.Context(), r)
					must.Succeed(t, err)
					for _, s := range page.GetSandboxes() {
						if got = append(got, s.GetId()); len(s.GetLabels()) > 0 || s.GetClusterId() != "" {
							t.Errorf("masked: %v", s)
						}
					}
					if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
						break
					}
				}
				if slices.Sort(got); len(got) != 10 || len(slices.Compact(got)) != 10 {
					t.Errorf("by %q in pages of %d: %v", by, size, got)
				}
			}
		}
		page, err := f.hub.List(t.Context(), &sandboxv1.ListSandboxesRequest{OrderBy: "team", PageSize: 3})
		must.Succeed(t, err)
		_, err = f.hub.List(t.Context(), &sandboxv1.ListSandboxesRequest{OrderBy: "user", PageSize: 3, PageToken: page.GetNextPageToken()})
		workertest.WantReason(t, err, problem.Invalid)
		sorts := f.Workers["west"].OnCall
		f.Workers["west"].OnCall = func(ctx context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
			d.GetList().OrderBy = ""
			return sorts(ctx, d)
		}
		page, err = f.hub.List(t.Context(), &sandboxv1.ListSandboxesRequest{OrderBy: "team"})
		if err != nil || !slices.Equal(page.GetUnreachableClusters(), []string{"west"}) || len(page.GetSandboxes()) != 9 {
			t.Errorf("with a worker that does not sort: %v, %v", page, err)
		}
		_, err = f.hub.List(t.Context(), &sandboxv1.ListSandboxesRequest{Watch: true})
		workertest.WantReason(t, err, problem.Invalid)
	})
}
