// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/heap"
	"navix.sh/atoll/pkg/segment"
)

// The scenario of the figures for ingest and memory: 100 clusters with 1000 Envs each, of one member each, every Env in
// four clusters. `make bench` runs both benchmarks and reads their output.
const (
	linkClusters = 100
	linkEnvs     = 1000
	linkShared   = 4
	linkChunk    = 250 // Envs, about what a worker puts into a frame of its first report
	linkReport   = 1000
)

// linkSegment is cluster c's report of its n-th Env; counts move with the round.
func linkSegment(c, n, round int) *federationv1.EnvSegment {
	env := (c/linkShared)*linkEnvs + n
	return &federationv1.EnvSegment{
		Key: &federationv1.EnvKey{Namespace: "default", Name: fmt.Sprintf("env-%05d", env)},
		Uid: fmt.Sprintf("6f9619ff-8b86-d011-b42d-%05d%07d", c, n), Generation: 3, Template: "python", DefaultInstanceType: "small",
		DefaultMultiplier: 1,
		Members: []*federationv1.MemberSegment{{
			Name: fmt.Sprintf("env-%05d-small", env), InstanceType: "small", Multiplier: 1, Image: "registry.example.com/sandbox/python:3.13",
			State: federationv1.MemberState_ACTIVE, Idle: 20, ReadyIdle: int32(10 + round%10), Running: int32(100 + round), Desired: 120,
			Current:       120,
			QueueCapacity: 100, CanGrow: true,
		}},
	}
}

// linkReports encodes one report of a cluster, in frames of at most size Envs.
func linkReports(tb testing.TB, c, round, size int, complete bool) [][]byte {
	tb.Helper()
	var snapshot segment.Snapshot
	var frames [][]byte
	for at := 0; at < linkEnvs; at += size {
		r := &federationv1.Report{Sequence: uint64(round), Chunk: uint32(at / size), Complete: complete, Last: at+size >= linkEnvs}
		for n := at; n < min(at+size, linkEnvs); n++ {
			p := linkSegment(c, n, round)
			s, err := segment.FromProto(p)
			must.Succeed(tb, err)
			snapshot.Put(s)
			r.Segments = append(r.Segments, p)
		}
		r.Digest = snapshot.Digest()
		raw, err := proto.Marshal(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Report{Report: r}})
		must.Succeed(tb, err)
		frames = append(frames, raw)
	}
	return frames
}

func decodeFrame(tb testing.TB, raw []byte) *federationv1.Report {
	frame := &federationv1.WorkerFrame{}
	must.Succeed(tb, proto.Unmarshal(raw, frame))
	return frame.GetReport()
}

// linkFleet has all clusters attached, and their first reports merged.
func linkFleet(tb testing.TB) []*Session {
	tb.Helper()
	f, err := New(context.Background(), Options{Clock: clock.RealClock{}, Registry: &memoryRegistry{}})
	must.Succeed(tb, err)
	sessions := make([]*Session, linkClusters)
	for c := range sessions {
		s, _, _ := f.Connect(Peer{ClusterID: fmt.Sprintf("cluster-%03d", c)},
			&federationv1.Hello{Protocol: 1, ClusterUid: fmt.Sprint(c), Term: "t", Stream: 1})
		must.Succeed(tb, s.Begin(&federationv1.Begin{Incarnation: 1}))
		for _, raw := range linkReports(tb, c, 1, linkChunk, true) {
			if ack := s.Report(decodeFrame(tb, raw)); ack.GetSendComplete() {
				tb.Fatal("a complete report was not applied")
			}
		}
		sessions[c] = s
	}
	for _, s := range sessions { // as if everything had been sent
		s.outbox.takeComplete()
		s.outbox.takeDirty(linkEnvs)
	}
	return sessions
}

// BenchmarkIngest measures, in turns, the time to decode a report of 1000 changed Envs, and to decode it and merge it into the
// view. ns/op covers both and means nothing.
func BenchmarkIngest(b *testing.B) {
	heap.Relax()
	sessions := linkFleet(b)
	var bare, full, ratios []float64
	size := 0
	round := 1
	for b.Loop() {
		round++
		c := round % linkClusters
		b.StopTimer()
		raw := linkReports(b, c, round, linkReport, false)[0]
		size = len(raw)
		b.StartTimer()
		var spent [2]time.Duration
		for i := range spent {
			arm := (i + round) % 2
			start := time.Now()
			report := decodeFrame(b, raw)
			if arm == 1 {
				if ack := sessions[c].Report(report); ack == nil || ack.GetSendComplete() {
					b.Fatal("a report was not applied: ", ack)
				}
			}
			spent[arm] = time.Since(start)
		}
		bare, full = append(bare, float64(spent[0])/linkReport), append(full, float64(spent[1])/linkReport)
		ratios = append(ratios, float64(spent[0])/float64(spent[1]))
	}
	b.ReportMetric(median(bare), "bare-ns")
	b.ReportMetric(median(full), "ingest-ns")
	b.ReportMetric(median(ratios), "ingest/bare")
	b.ReportMetric(float64(size)/linkReport, "bytes/segment")
}

// BenchmarkMemory measures the live heap that a member costs: in the fleet, with its Env's part in all indexes and views, and
// as nothing but the decoded messages.
func BenchmarkMemory(b *testing.B) {
	var fleetBytes, protoBytes float64
	for b.Loop() {
		before := live()
		sessions := linkFleet(b)
		fleetBytes = float64(live()-before) / (linkClusters * linkEnvs)
		runtime.KeepAlive(sessions) // and no longer

		before = live()
		retained := make([]*federationv1.EnvSegment, 0, linkClusters*linkEnvs)
		for c := range linkClusters {
			for _, raw := range linkReports(b, c, 1, linkChunk, true) {
				retained = append(retained, decodeFrame(b, raw).GetSegments()...)
			}
		}
		protoBytes = float64(live()-before) / (linkClusters * linkEnvs)
		runtime.KeepAlive(retained)
	}
	b.ReportMetric(fleetBytes, "B/member")
	b.ReportMetric(protoBytes, "proto-B/member")
	b.ReportMetric(fleetBytes/protoBytes, "fleet/proto")
}

// live is the heap in use once all garbage is gone, what package unique lets go of included.
func live() uint64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
