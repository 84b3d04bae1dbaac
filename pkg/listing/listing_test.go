// SPDX-License-Identifier: Apache-2.0

package listing

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

type request = sandboxv1.ListSandboxesRequest

func parse(t *testing.T, r *request) *Query {
	t.Helper()
	q, faults := Parse(r)
	if len(faults) > 0 {
		t.Fatalf("%v: %v", r, faults)
	}
	return q
}

func TestSelectors(t *testing.T) {
	s := &sandboxv1.Sandbox{
		Labels:   map[string]string{"app": "web", "tier": "b"},
		Metadata: map[string]string{"title": "Ann's, first = best", "!odd": "", "empty": ""},
	}
	for _, tc := range []struct {
		labels   string
		metadata []string
		want     bool
	}{
		{want: true},
		{labels: "app=web", want: true}, {labels: "app!=web"}, {labels: "app in (api,web),tier notin (a)", want: true},
		{labels: "app,!old", want: true}, {labels: "old"}, {labels: "app=web,tier=a"},
		{metadata: []string{"title=Ann's, first = best"}, want: true}, {metadata: []string{"title=Ann's"}},
		{metadata: []string{"title!=Ann's"}, want: true}, {metadata: []string{"title!=Ann's, first = best"}},
		{metadata: []string{"title"}, want: true}, {metadata: []string{"!title"}}, {metadata: []string{"!other"}, want: true},
		{metadata: []string{"other!=x"}, want: true}, {metadata: []string{"!odd="}, want: true},
		{metadata: []string{"empty="}, want: true}, {metadata: []string{"other="}},
		{metadata: []string{"title", "other"}}, {labels: "app=web", metadata: []string{"!title"}},
	} {
		q := parse(t, &request{LabelSelector: tc.labels, MetadataSelector: tc.metadata})
		if got := q.Includes(s); got != tc.want {
			t.Errorf("labels %q, metadata %q: %t", tc.labels, tc.metadata, got)
		}
	}
}

// Each wrong value is refused by its field, with the value and what is valid. TestI14: what a caller sends is bounded.
func TestI14WrongListsAreRefused(t *testing.T) {
	many := func(n int, text string) []string { return slices.Repeat([]string{text}, n) }
	now := timestamppb.New(time.Unix(1_000_000, 0))
	for _, tc := range []struct {
		r                   *request
		field, value, valid string // parts of value and valid
	}{
		{&request{LabelSelector: "app in web"}, "labelSelector", "app in web", "requirements such as"},
		{&request{LabelSelector: "app=" + strings.Repeat("x", 64)}, "labelSelector", "app=x", "must be no more than 63"},
		{&request{LabelSelector: strings.Repeat("a", 4097)}, "labelSelector", "4097 bytes", "at most 64 in 4096 bytes"},
		{&request{LabelSelector: strings.Join(many(65, "a"), ",")}, "labelSelector", "65 requirements", "at most 64"},
		{&request{MetadataSelector: []string{"a=b", "=c"}}, "metadataSelector[1]", "=c", "KEY=VALUE"},
		{&request{MetadataSelector: []string{"!"}}, "metadataSelector[0]", "!", "KEY=VALUE"},
		{&request{MetadataSelector: many(65, "a")}, "metadataSelector", "65 requirements", "at most 64"},
		{&request{MetadataSelector: []string{strings.Repeat("a", 4097)}}, "metadataSelector", "4097 bytes", "4096 bytes together"},
		{&request{OrderBy: "age"}, "orderBy", "age", "one of id, claimedAt"},
		{&request{OrderBy: "id down"}, "orderBy", "id down", `" desc"`},
		{&request{OrderBy: "id desc env"}, "orderBy", "id desc env", `" desc"`},
		{&request{OrderBy: "claimedAt", Phase: sandboxv1.Phase_ENDED}, "orderBy", "claimedAt", "ended sandboxes"},
		{&request{OrderBy: "env", PageToken: "x"}, "pageToken", "x", "nextPageToken"},
		{&request{OrderBy: "env", PageToken: "x/" + strings.Repeat("e", 1100)}, "pageToken", "x/e", "nextPageToken"},
		{&request{ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"id", "phse"}}}, "readMask", "phse", "phase; there are: claimKey, "},
		{&request{ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"pause.until"}}}, "readMask", "pause.until", "a field of pause: message, "},
		{&request{ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"labels.app"}}}, "readMask", "labels.app", "labels, which has no fields"},
		{&request{ReadMask: &fieldmaskpb.FieldMask{Paths: many(101, "id")}}, "readMask", "101 paths", "at most 100"},
		{&request{PageSize: 1001}, "pageSize", "1001", "0 to 1000"},
		{&request{StopReason: "Tired"}, "stopReason", "Tired", "Completed"},
		{&request{StopReason: "Failed", Phase: sandboxv1.Phase_RUNNING}, "phase", "RUNNING", "ENDED"},
		{&request{EndedAfter: now, EndedBefore: now}, "endedBefore", "1970", "after endedAfter"},
	} {
		_, faults := Parse(tc.r)
		if len(faults) != 1 || faults[0].Field != tc.field || !strings.Contains(faults[0].Value, tc.value) ||
			!strings.Contains(faults[0].Valid, tc.valid) {
			t.Errorf("%v: %v", tc.r, faults)
		}
	}
}

func TestOrders(t *testing.T) {
	at := func(n int) *timestamppb.Timestamp { return timestamppb.New(time.Unix(int64(n), 0)) }
	all := []*sandboxv1.Sandbox{
		{Id: "1", ClusterId: "west", Namespace: "b", Env: "x", Pool: "q", Team: "red", User: "eve", ClaimedAt: at(900)},
		{Id: "2", ClusterId: "east", Namespace: "b", Env: "x", Pool: "p", Team: "blue", User: "ann", ClaimedAt: at(5_000_000_000)},
		{Id: "3", ClusterId: "east", Namespace: "a", Env: "y", Pool: "p", Team: "red", User: "bob", ClaimedAt: at(1000)},
		{Id: "4", ClusterId: "north", Namespace: "a", Env: "x", Pool: "q", Team: "blue", User: "ann"},
	}
	for by, want := range map[string]string{
		"": "1234", "id": "1234", "id asc": "1234", "id desc": "4321", "claimedAt": "4132", "claimed_at desc": "2314",
		"env": "4312", "clusterId": "2341", "cluster_id desc": "1432", "pool": "3421", "team": "2413", "user": "2431", "user desc": "1342",
	} {
		q := parse(t, &request{OrderBy: by})
		list := slices.Clone(all)
		slices.SortFunc(list, func(a, b *sandboxv1.Sandbox) int { return q.Compare(q.At(a), q.At(b)) })
		got := ""
		for i, s := range list {
			got += s.GetId()
			rest := parse(t, &request{OrderBy: by, PageToken: q.Token(q.At(s))})
			for j, other := range list {
				if rest.Reaches(rest.At(other)) != (j > i) {
					t.Errorf("by %q: %s is on the page after %s: %t", by, other.GetId(), s.GetId(), j <= i)
				}
			}
		}
		if got != want {
			t.Errorf("by %q: %s, want %s", by, got, want)
		}
	}
}

// A page of another process counts only if it is what was asked for.
func TestPagesThatAreNone(t *testing.T) {
	id := func(n int) string { return fmt.Sprintf("01hzzzzzzzzzzzzzzzzzzz%04d-east", n) }
	s := func(n int, team string) *sandboxv1.Sandbox { return &sandboxv1.Sandbox{Id: id(n), Team: team} }
	byTeam := &request{OrderBy: "team", PageToken: id(5) + "/b"}
	for name, tc := range map[string]struct {
		r    *request
		page []*sandboxv1.Sandbox
		next string
		ok   bool
	}{
		"the last":           {byTeam, []*sandboxv1.Sandbox{s(6, "b"), s(1, "c")}, "", true},
		"with more":          {byTeam, []*sandboxv1.Sandbox{s(6, "b"), s(1, "c")}, id(1) + "/c", true},
		"searched in vain":   {byTeam, nil, id(1) + "/c", true},
		"by id":              {byTeam, []*sandboxv1.Sandbox{s(6, "c"), s(7, "b")}, "", false},
		"from the beginning": {byTeam, []*sandboxv1.Sandbox{s(1, "a")}, "", false},
		"again":              {byTeam, []*sandboxv1.Sandbox{s(5, "b")}, "", false},
		"the token again":    {byTeam, nil, id(5) + "/b", false},
		"more before":        {byTeam, []*sandboxv1.Sandbox{s(6, "b"), s(1, "c")}, id(7) + "/b", false},
		"an id for a token":  {byTeam, nil, id(7), false},
		"no id":              {byTeam, nil, "x/c", false},
		"first of ids":       {&request{}, []*sandboxv1.Sandbox{s(1, ""), s(2, "")}, id(2), true},
		"twice":              {&request{}, []*sandboxv1.Sandbox{s(1, ""), s(1, "")}, "", false},
	} {
		next, err := parse(t, tc.r).Page(tc.page, tc.next)
		if (err == nil) != tc.ok || (next != nil) != (tc.ok && tc.next != "") {
			t.Errorf("%s: %v, %v", name, next, err)
		}
	}
}

// A token is good for the same filters and order alone; page size and mask may change.
func TestTokensAreBoundToTheirQuery(t *testing.T) {
	first := &request{Env: "demo", LabelSelector: "app=web", OrderBy: "team", PageSize: 10}
	token := Seal(first, "01-east/red")
	with := func(change func(*request)) *request {
		r := &request{Env: "demo", LabelSelector: "app=web", OrderBy: "team", PageSize: 10, PageToken: token}
		change(r)
		return r
	}
	for name, tc := range map[string]struct {
		r  *request
		ok bool
	}{
		"the same":       {with(func(*request) {}), true},
		"another size":   {with(func(r *request) { r.PageSize = 1 }), true},
		"another mask":   {with(func(r *request) { r.ReadMask = &fieldmaskpb.FieldMask{Paths: []string{"id"}} }), true},
		"another Env":    {with(func(r *request) { r.Env = "demo2" }), false},
		"another order":  {with(func(r *request) { r.OrderBy = "team desc" }), false},
		"another label":  {with(func(r *request) { r.LabelSelector = "app=api" }), false},
		"with metadata":  {with(func(r *request) { r.MetadataSelector = []string{"a"} }), false},
		"cut off":        {with(func(r *request) { r.PageToken = token[:8] }), false},
		"not sealed":     {with(func(r *request) { r.PageToken = "01-east/red" }), false},
		"far too long":   {with(func(r *request) { r.PageToken = strings.Repeat("A", 1<<20) }), false},
		"a watch's mark": {with(func(r *request) { r.PageToken = MarksOf(first).Seal(Mark{}) }), false},
		"of no watch":    {with(func(r *request) { r.ResumeToken = token }), false},
	} {
		plain, faults := Unseal(tc.r)
		if (len(faults) == 0) != tc.ok {
			t.Errorf("%s: %q, %v", name, plain.GetPageToken(), faults)
		}
		if name == "the same" && plain.GetPageToken() != "01-east/red" {
			t.Errorf("it was %q", plain.GetPageToken())
		}
	}
	watch := &request{Env: "demo"}
	watch.ResumeToken = MarksOf(watch).Seal(Mark{Copy: 7, Revision: 1 << 40})
	if m, faults := UnsealMark(watch); len(faults) > 0 || *m != (Mark{Copy: 7, Revision: 1 << 40}) {
		t.Errorf("the mark is %v, %v", m, faults)
	}
	watch.Env = "other"
	if _, faults := UnsealMark(watch); len(faults) != 1 {
		t.Errorf("a mark of another watch: %v", faults)
	}
	if m, faults := UnsealMark(&request{}); m != nil || len(faults) > 0 {
		t.Errorf("no mark: %v, %v", m, faults)
	}
}

func TestMasks(t *testing.T) {
	whole := &sandboxv1.Sandbox{
		Id: "a", Team: "red", Labels: map[string]string{"app": "web"},
		Pause: &sandboxv1.Pause{State: sandboxv1.Pause_PAUSED, Reason: "why"}, ClaimedAt: timestamppb.New(time.Unix(9, 1)),
	}
	pause := func(p *sandboxv1.Pause) *sandboxv1.Sandbox { return &sandboxv1.Sandbox{Pause: p} }
	for paths, want := range map[string]*sandboxv1.Sandbox{
		"":                         whole,
		"*":                        whole,
		"id,*":                     whole,
		"id":                       {Id: "a"},
		"id,labels,claimedAt":      {Id: "a", Labels: whole.GetLabels(), ClaimedAt: whole.GetClaimedAt()},
		"claimed_at.seconds":       {ClaimedAt: &timestamppb.Timestamp{Seconds: 9}},
		"pause.state":              pause(&sandboxv1.Pause{State: sandboxv1.Pause_PAUSED}),
		"pause.state,pause.reason": pause(whole.GetPause()),
		"pause.state,pause":        pause(whole.GetPause()),
		"pause,pause.state":        pause(whole.GetPause()),
		"user":                     {},
	} {
		r := &request{}
		if paths != "" {
			r.ReadMask = &fieldmaskpb.FieldMask{Paths: strings.Split(paths, ",")}
		}
		if diff := cmp.Diff(want, parse(t, r).Masked(whole), protocmp.Transform()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", paths, diff)
		}
	}
	if whole.GetPause().GetReason() != "why" || whole.GetTeam() != "red" {
		t.Error("a mask has changed what it was applied to")
	}
}
