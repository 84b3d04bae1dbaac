// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

// The scenario of the routing figures: a pick on a random Env of 100k, 8 members each, in 8 clusters, with reports of all
// clusters arriving. `make bench` runs BenchmarkRoute and reads its output.
const (
	benchEnvs     = 100_000
	benchClusters = 8
	benchDelta    = 50 // segments a report
	benchReports  = 5 * time.Millisecond
	benchBatch    = 100
)

var benchFleet = sync.OnceValue(newRouteBench)

type routeBench struct {
	fleet    *Fleet
	sessions []*Session
	sequence []uint64
	digests  []segment.Snapshot
	locked   lockedView
	rnd      *rand.Rand
}

// lockedView is what a straightforward fleet would be: one map, one lock, and a scan of all members under it.
type lockedView struct {
	mu   sync.RWMutex
	envs map[segment.Key]map[string]*segment.Segment
}

func (l *lockedView) put(cluster string, s *segment.Segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.envs[s.Key()] == nil {
		l.envs[s.Key()] = map[string]*segment.Segment{}
	}
	l.envs[s.Key()][cluster] = s
}

func (l *lockedView) pick(k segment.Key) (best *segment.Member) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range l.envs[k] {
		members := s.Members()
		for i := range members {
			m := &members[i]
			if m.State == segment.Active && (best == nil || m.ReadyIdle > best.ReadyIdle) {
				best = m
			}
		}
	}
	return best
}

func benchName(buf []byte, n int) []byte {
	buf = append(buf[:0], "env-000000"...)
	for i := len(buf) - 1; n > 0; i-- {
		buf[i] = byte('0' + n%10)
		n /= 10
	}
	return buf
}

func benchRandom(rnd *rand.Rand, buf []byte) (uint64, []byte) {
	r := rnd.Uint64()
	return r, benchName(buf, int(r>>32)%benchEnvs)
}

func newRouteBench() *routeBench {
	f, err := New(context.Background(), Options{
		Clock: clock.RealClock{}, Registry: &memoryRegistry{}, Limits: Limits{Envs: benchEnvs, Members: benchEnvs}, // more than by default
	})
	if err != nil {
		panic(err)
	}
	b := &routeBench{fleet: f, rnd: rand.New(rand.NewPCG(1, 1))}
	b.locked.envs = make(map[segment.Key]map[string]*segment.Segment, benchEnvs)
	b.sequence = make([]uint64, benchClusters)
	b.digests = make([]segment.Snapshot, benchClusters)
	for c := range benchClusters {
		s, _, _ := f.Connect(Peer{ClusterID: fmt.Sprint("cluster-", c)}, &federationv1.Hello{Protocol: 1, ClusterUid: fmt.Sprint(c), Term: "t",
			Stream: 1})
		if err := s.Begin(&federationv1.Begin{Incarnation: 1}); err != nil {
			panic(err)
		}
		b.sessions = append(b.sessions, s)
		const chunk = 2000
		for at := 0; at < benchEnvs; at += chunk {
			r := &federationv1.Report{Sequence: 1, Chunk: uint32(at / chunk), Complete: true, Last: at+chunk == benchEnvs}
			for n := at; n < at+chunk; n++ {
				r.Segments = append(r.Segments, b.segment(c, n))
			}
			r.Digest = b.digests[c].Digest()
			s.Report(r)
		}
		b.sequence[c] = 1
	}
	for n := range benchEnvs { // or the figure would be that of claims for Envs that are not there
		if got := f.View(segment.Key{Namespace: "default", Name: string(benchName(nil, n))}).Len(); got != benchClusters {
			panic(fmt.Sprintf("Env %d has %d members in the view, not %d", n, got, benchClusters))
		}
	}
	return b
}

func (b *routeBench) segment(c, n int) *federationv1.EnvSegment {
	p := &federationv1.EnvSegment{
		Key: &federationv1.EnvKey{Namespace: "default", Name: string(benchName(nil, n))},
		Members: []*federationv1.MemberSegment{{
			Name: fmt.Sprint("pool-", c), State: federationv1.MemberState_ACTIVE, Image: "python:3", CanGrow: true,
			ReadyIdle: 5 + b.rnd.Int32N(20), QueueCapacity: 100, Running: b.rnd.Int32N(1000),
		}},
	}
	s, err := segment.FromProto(p)
	if err != nil {
		panic(err)
	}
	b.digests[c].Put(s)
	b.locked.put(fmt.Sprint("cluster-", c), s)
	return p
}

// reportsArrive applies deltas, to the fleet and to the locked view, until stopped.
func (b *routeBench) reportsArrive() (stop func() (segments int)) {
	done, stopped := make(chan struct{}), make(chan int)
	go func() {
		applied := 0
		ticker := time.NewTicker(benchReports)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-done:
				stopped <- applied
				return
			case <-ticker.C:
			}
			c := n % benchClusters
			b.sequence[c]++
			r := &federationv1.Report{Sequence: b.sequence[c], Last: true}
			named := map[int]bool{}
			for range benchDelta {
				if env := b.rnd.IntN(benchEnvs); !named[env] {
					named[env] = true
					r.Segments = append(r.Segments, b.segment(c, env))
				}
			}
			r.Digest = b.digests[c].Digest()
			if ack := b.sessions[c].Report(r); ack == nil || ack.GetSendComplete() {
				panic(fmt.Sprint("a report was not applied: ", ack))
			}
			applied += len(r.Segments)
		}
	}()
	return func() int {
		close(done)
		return <-stopped
	}
}

var sink atomic.Int64

// BenchmarkRoute measures the three arms in turns, a hundred calls at a time, so that the machine's drift hits all alike,
// and reports medians, the ratio's over rounds. ns/op is a round's and means nothing.
func BenchmarkRoute(b *testing.B) {
	bench := benchFleet()
	rnd := rand.New(rand.NewPCG(2, 2))
	req := &router.Request{}
	var total int64
	var buf [16]byte
	// Written out, because a name that is passed to a function value escapes, and the arms must not allocate.
	arms := []struct {
		name string
		run  func()
	}{
		{"bare", func() {
			for range benchBatch {
				_, name := benchRandom(rnd, buf[:])
				total += int64(bench.fleet.View(segment.Key{Namespace: "default", Name: string(name)}).Len())
			}
		}},
		{"pick", func() {
			for range benchBatch {
				r, name := benchRandom(rnd, buf[:])
				_, d := bench.fleet.pick(segment.Key{Namespace: "default", Name: string(name)}, req, r)
				total += int64(d.Index)
			}
		}},
		{"rwmutex", func() {
			for range benchBatch {
				_, name := benchRandom(rnd, buf[:])
				total += int64(bench.locked.pick(segment.Key{Namespace: "default", Name: string(name)}).ReadyIdle)
			}
		}},
	}
	allocs := testing.AllocsPerRun(1000, func() { bench.fleet.pick(segment.Key{Namespace: "default", Name: "env-000007"}, req, 7) })
	stop := bench.reportsArrive()
	spent := make([][]float64, len(arms)) // by arm and round, ns a call
	var ratios []float64
	b.ResetTimer()
	for round := 0; b.Loop(); round++ {
		for i := range arms {
			arm := (i + round) % len(arms)
			start := time.Now()
			arms[arm].run()
			spent[arm] = append(spent[arm], float64(time.Since(start).Nanoseconds())/benchBatch)
		}
		ratios = append(ratios, spent[1][round]/spent[0][round])
	}
	b.StopTimer()
	sink.Store(total)
	segments := stop()
	for i, arm := range arms {
		b.ReportMetric(median(spent[i]), arm.name+"-ns")
	}
	b.ReportMetric(median(ratios), "pick/bare")
	b.ReportMetric(allocs, "pick-allocs")
	b.ReportMetric(float64(segments)/b.Elapsed().Seconds(), "segments/s")
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
