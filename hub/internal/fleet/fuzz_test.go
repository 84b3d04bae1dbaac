// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/frametest"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
)

func reportFrame(r *federationv1.Report) *federationv1.WorkerFrame {
	return &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Report{Report: r}}
}

// I5: whatever arrives, in whatever order, a report counts in full or not at all, and only with its last chunk; the view always
// equals the cluster's snapshot.
func FuzzFrames(f *testing.F) {
	east := newOwner(f, "east", envs(5)...)
	complete := east.completeReport(2)
	var whole []*federationv1.WorkerFrame
	for _, r := range complete {
		whole = append(whole, reportFrame(r))
	}
	delta := east.report(east.truth.Apply(segment.Delta{Changed: []*segment.Segment{pool(env(1), 9)}, Removed: []segment.Key{env(2)}}), false,
		1)
	hello := &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Hello{Hello: east.hello()}}
	begin := &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Begin{Begin: &federationv1.Begin{Incarnation: 2}}}
	beat := &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Heartbeat{Heartbeat: &federationv1.Heartbeat{Number: 1, Sequence: 1,
		ResourceVersion: 7}}}
	f.Add(frametest.Join(f, whole...))
	f.Add(frametest.Join(f, append(whole, reportFrame(delta[0]), beat)...))
	f.Add(frametest.Join(f, whole[0], whole[2], hello, begin, beat, whole[1], whole[2]))
	f.Add(frametest.Join(f, hello, whole[0], reportFrame(delta[0]), whole[1], whole[2]))
	f.Fuzz(func(t *testing.T, data []byte) {
		fleet := newFleet(t, &memoryRegistry{})
		worker := newOwner(t, "east")
		worker.attach(fleet)
		s := worker.session
		defer func() { s.Close() }()
		for _, frame := range frametest.Cut(data) {
			c := s.cluster
			before := holds(c)
			switch body := frame.GetBody().(type) {
			case *federationv1.WorkerFrame_Hello:
				next, welcome, refused := fleet.Connect(Peer{ClusterID: "east"}, body.Hello)
				if (next == nil) == (refused == nil) || (next == nil) != (welcome == nil) {
					t.Fatalf("neither welcomed nor refused: %v %v", welcome, refused)
				}
				if next != nil {
					s = next
				}
			case *federationv1.WorkerFrame_Begin:
				_ = s.Begin(body.Begin)
			case *federationv1.WorkerFrame_Heartbeat:
				s.Heartbeat(body.Heartbeat)
			case *federationv1.WorkerFrame_Report:
				if ack := s.Report(body.Report); ack != nil && ack.GetSequence() != body.Report.GetSequence() {
					t.Fatalf("report %d is acknowledged as %d", body.Report.GetSequence(), ack.GetSequence())
				}
			}
			if !frame.GetReport().GetLast() && !segment.Diff(before, holds(c)).Empty() {
				t.Fatalf("%v changed the view", frame)
			}
			checkView(t, fleet, holds(c))
			if got := holds(c); got.Digest() != c.holdings.digest {
				t.Fatalf("the digest is %d, recomputed %d", c.holdings.digest, got.Digest())
			}
		}
	})
}

// holds are the sums of a cluster's holdings.
func holds(c *cluster) *segment.Snapshot {
	var out segment.Snapshot
	for _, p := range c.holdings.parts {
		out.Put(p.segment)
	}
	return &out
}

func checkView(t *testing.T, f *Fleet, want *segment.Snapshot) {
	t.Helper()
	got := held(f, "east")
	if !segment.Diff(got, want).Empty() || got.Digest() != want.Digest() {
		t.Fatalf("the view has %v, the cluster %v", got.Keys(), want.Keys())
	}
}

// A hello is welcomed or refused, whatever its content, and leaves nothing behind that the next fleet cannot load.
func FuzzHello(f *testing.F) {
	for _, h := range []*federationv1.Hello{newOwner(f, "east").hello(), {}, {Protocol: 99, ClusterUid: "x"}} {
		data, err := proto.Marshal(h)
		must.Succeed(f, err)
		f.Add(data, uint64(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, incarnation uint64) {
		hello := &federationv1.Hello{}
		if proto.Unmarshal(data, hello) != nil {
			return
		}
		file, err := store.OpenBolt(filepath.Join(t.TempDir(), "registry.db"), "registry")
		must.Succeed(t, err)
		defer func() { _ = file.Close() }()
		registry := NewRegistry(file)
		fleet := newFleet(t, registry)
		session, _, refused := fleet.Connect(Peer{ClusterID: "east"}, hello)
		if refused != nil {
			return
		}
		defer session.Close()
		_ = session.Begin(&federationv1.Begin{Incarnation: incarnation})
		newFleet(t, registry)
	})
}

// The registry's entries are read, or refused, and what was read is written back the same.
func FuzzRegistry(f *testing.F) {
	good, err := json.Marshal(Record{ClusterID: "east", UID: "u", Incarnation: 3, Term: "t", Tombstones: []segment.Key{env(1)}})
	must.Succeed(f, err)
	f.Add(good)
	f.Add([]byte(`{"clusterID":"east","tombstones":[{}],"incarnation":-1}`))
	f.Add([]byte(`{"registeredAt":"0000-01-01T00:00:00Z"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, value []byte) {
		file, err := store.OpenBolt(filepath.Join(t.TempDir(), "registry.db"), "registry")
		must.Succeed(t, err)
		defer func() { _ = file.Close() }()
		put := store.Put{Key: "cluster/east", Value: value}
		_, err = file.Commit(t.Context(), store.Txn{Puts: []store.Put{put}})
		must.Succeed(t, err)
		fleet, err := New(t.Context(), Options{Clock: clock.RealClock{}, Registry: NewRegistry(file)})
		if err != nil {
			return
		}
		for _, c := range fleet.Clusters() {
			if _, err := proto.Marshal(c); err != nil {
				t.Fatalf("cluster %v cannot be shown: %v", c, err)
			}
			fleet.Connect(Peer{ClusterID: c.GetId()}, &federationv1.Hello{Protocol: 1, ClusterUid: "u", Term: "t2", Stream: 1})
		}
	})
}
