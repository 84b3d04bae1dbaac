// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/sim/simnet"
	"navix.sh/atoll/hub/hubtest"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/worker/workertest"
)

const (
	hubHost    = "hub"
	hubAddress = "127.0.0.1:8443"
	env        = "demo"
)

// world is a federation in a bubble: one hub, some clusters, the network between them, and a load.
type world struct {
	*testing.T
	seed    uint64
	allowed allowance
	net     *simnet.Network
	log     logr.Logger

	claims, registry *hubtest.Disk
	hubClock         *machine
	frames           *frames
	replicas         []*replica // of the hub; none: it is one process, below
	shared           *shared    // the replicas' stores and connections

	mu       sync.Mutex
	hub      *hubtest.Hub
	epoch    int // of hub processes
	sites    []*site
	problems []string
	deaf     func() bool // loses a response on its way to the caller
	history  *history
}

// site is a cluster with its worker process.
type site struct {
	*workertest.Cluster
	world *world
	clock *machine
	host  string // on the network; all of a cluster's processes share its path to the hub
	out   bool   // it is not part of the federation: the checks skip it

	mu      sync.Mutex
	workers []*workertest.Worker // that run
	number  int                  // of processes so far
	paused  bool                 // a process that ended is not restarted
	places  int                  // that processes run at, one after the other, each with its own disk
	dials   int                  // to the hub so far
}

// dice is a source of randomness by name: one part's draws do not change another's.
func (w *world) dice(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash never fails
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// newWorld starts a hub and clusters with that many Pods each. With replicas the hub is so many processes.
func newWorld(t *testing.T, seed uint64, clusters map[string]int32, replicas int) *world {
	w := &world{T: t, seed: seed, net: simnet.New(seed), log: logger(t), hubClock: newMachine(), history: newHistory(),
		deaf: func() bool { return false }}
	disk := w.dice("disk")
	var mu sync.Mutex
	latency := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return 500*time.Microsecond + time.Duration(disk.Int64N(int64(2*time.Millisecond)))
	}
	w.claims, w.registry = hubtest.NewDisk(latency), hubtest.NewDisk(latency)
	w.frames = newFrames(w.dice("frames"))
	if replicas > 0 {
		w.startReplicas(replicas)
	} else {
		w.startHub()
	}
	for _, id := range slices.Sorted(maps.Keys(clusters)) {
		w.add(id, id, "uid-"+id, clusters[id]).startWorker()
	}
	return w
}

// startHub starts a hub process on the disks.
func (w *world) startHub() {
	w.Helper()
	hub, err := w.tryHub()
	if err != nil {
		w.Fatalf("starting the hub: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hub = hub
	w.epoch++
}

func (w *world) tryHub() (*hubtest.Hub, error) {
	var disks [2]store.Store
	for i, d := range []*hubtest.Disk{w.claims, w.registry} {
		s, err := d.Open()
		if err != nil {
			return nil, err
		}
		disks[i] = s
	}
	listener, err := w.net.Listen(hubHost)
	if err != nil {
		return nil, err
	}
	draw := w.dice(fmt.Sprint("hub", w.epoch))
	var mu sync.Mutex
	return hubtest.Start(w.Context(), hubtest.Options{
		Clock: w.hubClock, Listener: listener, Credentials: credentials(w.T, link.Hub()), Claims: disks[0], Registry: disks[1],
		Log: w.log.WithName("hub"), Intercept: w.frames.intercept,
		Rand: func() uint64 {
			mu.Lock()
			defer mu.Unlock()
			return draw.Uint64()
		},
	})
}

// killHub ends the hub process between two instants: after this it writes nothing to disk or wire.
func (w *world) killHub() {
	w.mu.Lock()
	hub := w.hub
	w.hub = nil
	w.epoch++
	w.mu.Unlock()
	w.claims.Detach()
	w.registry.Detach()
	w.net.Reset(hubHost)
	if hub != nil {
		go func() { _ = hub.Stop() }() // it is dead already; only its goroutines have to end
	}
}

// restartHub restarts the hub with all its replicas.
func (w *world) restartHub(after time.Duration) {
	if len(w.replicas) > 0 {
		for _, r := range w.replicas {
			r.die()
		}
		time.Sleep(after)
		for _, r := range w.replicas {
			r.start()
		}
		return
	}
	w.killHub()
	time.Sleep(after)
	w.startHub()
}

// add adds a cluster with an identity.
func (w *world) add(host, identity, uid string, pods int32) *site {
	w.Helper()
	h := fnv.New64a()
	_, _ = h.Write([]byte(host)) // a hash never fails
	cluster, err := workertest.NewCluster(identity, uid, w.seed^h.Sum64())
	must.Succeed(w, err)
	if pods > 0 {
		must.Succeed(w, cluster.AddEnv(env, pods, ""))
	}
	s := &site{Cluster: cluster, world: w, clock: newMachine(), host: host}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sites = append(w.sites, s)
	return s
}

// startWorker starts a process that is restarted, on the same disk, whenever it ends.
func (s *site) startWorker() {
	s.mu.Lock()
	s.places++
	s.mu.Unlock()
	s.startWorkerOn(store.NewMemory())
}

func (s *site) startWorkerOn(disk store.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	name := fmt.Sprintf("%s-%d", s.host, s.number)
	alive, gone := context.WithCancel(context.Background())
	draw := s.world.dice("link" + name)
	worker, err := s.StartWorker(workertest.Options{
		Name: name, Clock: s.clock, Disk: disk, Log: s.world.log.WithName(name),
		Hub: link.Dial{
			Target: hubAddress, Credentials: credentials(s.world.T, link.Cluster(s.ID)), Clock: s.clock,
			Log: s.world.log.WithName(name), Random: draw.Int64N,
			Open: func(ctx context.Context, _ string) (net.Conn, error) {
				if alive.Err() != nil {
					return nil, alive.Err()
				}
				return s.world.net.Dial(ctx, s.host, s.nextHub())
			},
		},
	})
	if err != nil {
		gone()
		s.world.problem("starting %s: %v", name, err)
		return
	}
	s.workers = append(s.workers, worker)
	go func() {
		<-worker.Ended()
		gone()
		s.mu.Lock()
		s.workers = slices.DeleteFunc(s.workers, func(other *workertest.Worker) bool { return other == worker })
		again := !s.paused
		s.mu.Unlock()
		if again {
			s.startWorkerOn(disk)
		}
	}()
}

// killWorker kills all of the cluster's processes. Each is restarted.
func (s *site) killWorker() {
	for _, host := range s.world.hosts() {
		s.world.net.Path(s.host, host).Break()
	}
	s.mu.Lock()
	workers := slices.Clone(s.workers)
	s.mu.Unlock()
	for _, worker := range workers {
		worker.Kill()
	}
}

// leader returns the process that serves; nil if none does.
func (s *site) leader() *workertest.Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, worker := range s.workers {
		if worker.Serving() {
			return worker
		}
	}
	return nil
}

func (s *site) stop() {
	s.mu.Lock()
	s.paused = true
	workers := slices.Clone(s.workers)
	s.mu.Unlock()
	for _, worker := range workers {
		worker.Stop()
	}
}

// path is the network from a cluster to the hub: the paths to all its replicas.
func (w *world) path(id string) ways {
	var all ways
	for _, host := range w.hosts() {
		all = append(all, w.net.Path(id, host))
	}
	return all
}

// ways are paths that one fault affects.
type ways []*simnet.Path

func (all ways) Cut()   { all.each((*simnet.Path).Cut) }
func (all ways) Stall() { all.each((*simnet.Path).Stall) }
func (all ways) Heal()  { all.each((*simnet.Path).Heal) }
func (all ways) Break() { all.each((*simnet.Path).Break) }

func (all ways) each(do func(*simnet.Path)) {
	for _, path := range all {
		do(path)
	}
}

// close ends everything in order. A leaked goroutine keeps the bubble from ending, which fails the test.
func (w *world) close() {
	var all sync.WaitGroup
	for _, s := range w.sites {
		all.Go(s.stop)
	}
	all.Wait()
	w.mu.Lock()
	hub := w.hub
	w.hub = nil
	w.mu.Unlock()
	if hub != nil {
		if err := hub.Stop(); err != nil {
			w.problem("stopping the hub: %v", err)
		}
	}
	for _, r := range w.replicas {
		r.stop()
	}
	time.Sleep(linger)
}

// linger waits for requests in flight to an API server; because a bubble's clock stops with its test.
const linger = 2 * time.Minute

// problem records a failure; the test continues, to show all of them.
func (w *world) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// eventually waits, in the bubble's time, until a check passes.
func (w *world) eventually(what string, within time.Duration, check func() error) bool {
	until := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return true
		}
		if time.Now().After(until) {
			w.problem("not within %s: %s: %v", within, what, err)
			return false
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// issued are the certificates of all worlds. They are created in a bubble, whose year differs.
var issued struct {
	sync.Mutex
	ca    *pki.Authority
	files map[link.Identity]link.Files
}

func credentials(t *testing.T, who link.Identity) *link.Credentials {
	issued.Lock()
	defer issued.Unlock()
	files, ok := issued.files[who]
	if !ok {
		var err error
		if who == link.Hub() {
			files, err = issued.ca.Hub("127.0.0.1")
		} else {
			files, err = issued.ca.Cluster(who.ClusterID)
		}
		must.Succeed(t, err)
		issued.files[who] = files
	}
	creds, err := link.LoadCredentials(files, logr.Discard())
	must.Succeed(t, err)
	return creds
}

// bubble runs a world in a bubble.
func bubble(t *testing.T, f func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		issued.Lock()
		if issued.ca == nil {
			ca, err := pki.New(filepath.Join(certificates, "pki"))
			must.Succeed(t, err)
			issued.ca, issued.files = ca, map[link.Identity]link.Files{}
		}
		issued.Unlock()
		f(t)
	})
}

var certificates string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "atoll-sim-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	certificates = dir
	klog.SetLogger(logr.Discard())  // leader election's
	utilruntime.ErrorHandlers = nil // they slow down all errors of the process, by a clock that outlives a bubble
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
