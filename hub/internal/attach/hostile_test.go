// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/segment"
)

func memberSegment(env string, members ...*federationv1.MemberSegment) *federationv1.EnvSegment {
	return &federationv1.EnvSegment{Key: segment.Key{Namespace: "default", Name: env}.Proto(), Members: members}
}

// I14: whatever a cluster reports of an Env, the streams of the clusters that share it continue, and carry the other clusters'
// reports.
func TestI14WhatAClusterSaysEndsNoOtherStream(t *testing.T) {
	many := func(n int, m func(i int) *federationv1.MemberSegment) (all []*federationv1.MemberSegment) {
		for i := range n {
			all = append(all, m(i))
		}
		return all
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, said := range map[string][]*federationv1.EnvSegment{
		// As large as the hub accepts it, so that its envelope on the way to others is too much.
		"a member name of 4 MiB": {memberSegment("py", &federationv1.MemberSegment{Name: long(4<<20 - 51)})},
		"an image of 4 MiB":      {memberSegment("py", &federationv1.MemberSegment{Name: "m", Image: long(4<<20 - 55)})},
		"a group of 4 MiB":       {memberSegment("py", &federationv1.MemberSegment{Name: "m", ScalingGroup: long(4<<20 - 54)})},
		"long names": {memberSegment("py", many(200, func(i int) *federationv1.MemberSegment {
			return &federationv1.MemberSegment{Name: fmt.Sprint(long(20_000), i)}
		})...)},
		"many members": {memberSegment("py", many(50_000, func(i int) *federationv1.MemberSegment {
			return &federationv1.MemberSegment{Name: fmt.Sprint("member-of-a-segment-that-is-much-too-long-", i)}
		})...)},
		"nothing, often": many2(300_000),
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, handler{})
			victim, north := h.attach("victim", "py", "go"), h.attach("north", "py")
			liar := h.attach("liar", "py", "go")
			lie := &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Report{Report: &federationv1.Report{Sequence: 2, Last: true,
				Segments: said}}}
			t.Logf("a frame of %d bytes", proto.Size(lie))
			liar.send(lie)
			north.report(&federationv1.Report{Sequence: 2, Last: true, Segments: []*federationv1.EnvSegment{
				memberSegment("py", &federationv1.MemberSegment{Name: "told"})}})
			victim.next("word of north", func(f *federationv1.HubFrame) bool {
				for _, e := range f.GetForeign().GetEnvs() {
					for _, s := range e.GetSegments() {
						if s.GetClusterId() == "north" && len(s.GetMembers()) == 1 && s.GetMembers()[0].GetName() == "told" {
							return true
						}
					}
				}
				return false
			})
			// A stream that begins again gets everything.
			victim.end()
			again := h.again("victim", 2)
			// Not report, which drops what comes before its ack.
			again.sendReport(&federationv1.Report{Sequence: 2, Last: true, Complete: true}, "py", "go")
			again.next("everything", func(f *federationv1.HubFrame) bool { return f.GetForeign().GetComplete() && f.GetForeign().GetLast() })
			// The lying cluster's own stream continues as well: it heartbeats.
			liar.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Heartbeat{Heartbeat: &federationv1.Heartbeat{Number: 9}}})
			liar.next("heartbeat", func(f *federationv1.HubFrame) bool { return f.GetHeartbeatAck().GetNumber() == 9 })
			if state := h.fleet.Cluster("victim").GetState(); state != sandboxv1.ClusterState_FRESH {
				t.Errorf("the victim is %s", state)
			}
		})
	}
}

// many2 are segments that take two bytes each on the wire.
func many2(n int) []*federationv1.EnvSegment {
	all := make([]*federationv1.EnvSegment, n)
	for i := range all {
		all[i] = &federationv1.EnvSegment{}
	}
	return all
}

// I14: a caller's request that fits no frame is refused, and its stream continues.
func TestI14ARequestThatNoFrameCarriesIsRefused(t *testing.T) {
	h := newHub(t, handler{})
	w := h.attach("a", "py")
	for name, value := range map[string]string{"5 MiB": strings.Repeat("x", 5<<20), "no text": "\xff\xfe"} {
		d := claimOf("k")
		d.GetClaim().GetRequest().Metadata = map[string]string{"blob": value}
		o := h.await(h.dispatch(t.Context(), "a", d))
		if o.err != nil || codes.Code(o.answer.GetError().GetCode()) != codes.InvalidArgument ||
			o.answer.GetDisposition() != federationv1.Disposition_DONE {
			t.Errorf("%s: %v, %v", name, o.answer, o.err)
		}
	}
	done := h.dispatch(t.Context(), "a", claimOf("k"))
	d := w.dispatched()
	w.answer(&federationv1.Answer{Id: d.GetId()})
	h.must(h.await(done).err)
}

// I14: a response and a record are bounded, whatever the worker sends.
func TestI14WhatAWorkerAnswersIsBounded(t *testing.T) {
	long := strings.Repeat("ä", 1<<20)
	for name, a := range map[string]*federationv1.Answer{
		"a sandbox": {Result: &federationv1.Answer_Sandbox{Sandbox: &sandboxv1.Sandbox{Id: "x-a", Metadata: map[string]string{"a": long}}}},
		"an id":     {Result: &federationv1.Answer_Sandbox{Sandbox: &sandboxv1.Sandbox{Id: strings.Repeat("x", 1000)}}},
	} {
		if got := bounded(a); got.GetDisposition() != federationv1.Disposition_UNCLEAR || got.GetSandbox() != nil {
			t.Errorf("%s: passed on as %.200v", name, got)
		}
	}
	got := bounded(&federationv1.Answer{Error: &federationv1.Error{Code: 5, Message: long[:1<<19+1]}})
	if n := len(got.GetError().GetMessage()); n > maxMessage+3 || got.GetError().GetCode() != 5 || unsendable(nil) == nil {
		t.Errorf("an error of %d bytes is passed on", n)
	}
	kept, dropped := storable([]*federationv1.EndedSandbox{{KeyHash: "a"}, {KeyHash: long}, nil})
	if len(kept) != 2 || dropped != 1 {
		t.Errorf("%d records are stored, %d dropped", len(kept), dropped)
	}
}

func TestAHelloWithTooManyUnacknowledgedIsRefused(t *testing.T) {
	for name, u := range map[string][]*federationv1.Unacknowledged{
		"too many": make([]*federationv1.Unacknowledged, maxUnacknowledged+1), "a long id": {{SandboxId: strings.Repeat("x", 1<<20)}},
	} {
		if checkUnacknowledged(u) == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if err := checkUnacknowledged(make([]*federationv1.Unacknowledged, maxUnacknowledged)); err != nil {
		t.Error(err)
	}
}

// Forgetting revokes the certificate: it is refused with any uid, and so is its key when the name is another cluster's.
func TestAForgottenClusterIsRefusedByItsCertificate(t *testing.T) {
	h := newHub(t, handler{})
	stolen := h.credentials("a")
	hello := func(creds *link.Credentials, uid string) string {
		w := h.dialWith("a", creds)
		defer w.end()
		return w.hello(&federationv1.Hello{ClusterUid: uid, Term: uid}).GetRefused().GetReason()
	}
	if reason := hello(stolen, "uid-a"); reason != "" {
		t.Fatal(reason)
	}
	h.eventually(func() error {
		_, err := h.fleet.Forget(t.Context(), "a")
		return err
	})
	if reason := hello(stolen, "invented"); reason != "Forgotten" {
		t.Errorf("with an invented uid: %q", reason)
	}
	_, err := h.fleet.ReleaseName(t.Context(), "a")
	must.Succeed(t, err)
	if reason := hello(stolen, "invented"); reason != "Forgotten" {
		t.Errorf("to a name that was released: %q", reason)
	}
	if reason := hello(h.credentials("a"), "uid-b"); reason != "" {
		t.Errorf("another cluster is refused: %q", reason)
	}
}

// I14: a cluster that opens streams without beginning on them is limited to a few, and no other cluster is affected.
func TestI14StreamsThatDoNotBeginAreFew(t *testing.T) {
	h := newHub(t, handler{})
	var idle []*worker
	for range maxOpening {
		w := h.dial("a")
		w.hello(&federationv1.Hello{Stream: uint64(len(idle) + 1)})
		idle = append(idle, w)
	}
	w := h.dial("a")
	if _, err := w.stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	h.attach("b", "py")
	idle[0].end()
	h.eventually(func() error {
		w := h.dial("a")
		defer w.end()
		_ = w.stream.Send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Hello{Hello: &federationv1.Hello{
			Protocol: 1, ClusterUid: "uid-a", Term: "term-a", Stream: 100}}})
		_, err := w.stream.Recv()
		return err
	})
}

// I14: an acknowledgement counts for the CAs that the hub has sent on the stream; because each new one has the cluster's record written.
func TestI14OnlyWhatTheHubSentIsAcknowledged(t *testing.T) {
	h := newHub(t, handler{})
	w := h.attach("a", "py")
	trusts := func(number uint64, hash string) string {
		w.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_TrustAck{TrustAck: &federationv1.TrustAck{Hash: hash}}})
		w.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Heartbeat{Heartbeat: &federationv1.Heartbeat{Number: number}}})
		w.next("heartbeat", func(f *federationv1.HubFrame) bool { return f.GetHeartbeatAck().GetNumber() == number })
		return h.fleet.Credentials()[0].Trust
	}
	if got := trusts(1, "invented"); got != "" {
		t.Errorf("the cluster trusts %q, of which it was sent nothing", got)
	}
	sent := "sent"
	h.server.conn("a").offered.Store(&sent)
	if got := trusts(2, "sent"); got != sent {
		t.Errorf("the cluster trusts %q, want what it was sent", got)
	}
	if got := trusts(3, "invented"); got != sent {
		t.Errorf("the cluster trusts %q after it was sent another", got)
	}
}
