// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/sim/simnet"
	"navix.sh/atoll/hub/hubtest"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/store"
)

// shared is what the replicas of a hub have in common.
type shared struct {
	claims, registry *quorum

	mu      sync.Mutex
	callers *rand.Rand // draws the replica of each call
}

// replica is a place where one of several hub processes runs.
type replica struct {
	world  *world
	name   string // also on the network
	frozen gate   // nothing gets in or out

	// Guarded by the world's lock.
	hub   *hubtest.Hub
	epoch int // of its processes
	doors []*door
	kill  context.CancelFunc
}

func (w *world) startReplicas(n int) {
	newQuorum := func(name string) *quorum { return &quorum{Memory: store.NewMemory(), random: w.dice(name)} }
	w.shared = &shared{
		claims: newQuorum("claims"), registry: newQuorum("registry"), callers: w.dice("callers"),
	}
	for i := range n {
		w.replicas = append(w.replicas, &replica{world: w, name: fmt.Sprint("hub-", i)})
	}
	for _, r := range w.replicas { // all are known before one runs
		r.start()
	}
}

// start starts a process.
func (r *replica) start() {
	w := r.world
	w.Helper()
	r.freeze(false)
	listener, err := w.net.Listen(r.name)
	must.Succeed(w, err)
	others, err := w.net.Listen(atPeers(r.name))
	must.Succeed(w, err)
	dead, kill := context.WithCancel(context.Background())
	doors := []*door{{quorum: w.shared.claims, frozen: &r.frozen, dead: dead}, {quorum: w.shared.registry, frozen: &r.frozen, dead: dead}}
	draw := w.dice(fmt.Sprint(r.name, r.epoch))
	var mu sync.Mutex
	hub, err := hubtest.Start(w.Context(), hubtest.Options{
		Clock: w.hubClock, Listener: listener, Credentials: credentials(w.T, link.Hub()), Claims: doors[0], Registry: doors[1],
		Log: w.log.WithName(r.name), Intercept: w.frames.intercept,
		Peers: &hubtest.Peers{
			Name: r.name, Listener: others, Alive: w.alive,
			Dial: func(ctx context.Context, name string) (net.Conn, error) {
				if dead.Err() != nil {
					return nil, dead.Err()
				}
				return w.net.Dial(ctx, r.name, atPeers(name))
			},
		},
		Rand: func() uint64 {
			mu.Lock()
			defer mu.Unlock()
			return draw.Uint64()
		},
	})
	if err != nil {
		w.Fatalf("starting %s: %v", r.name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.hub, r.doors, r.kill = hub, doors, kill
	r.epoch++
}

// die ends the process between two instants: after this it writes nothing to the store or the wire.
func (r *replica) die() {
	if hub := r.remove(); hub != nil {
		r.cutOff()
		go func() { _ = hub.Stop() }() // it is dead already; only its goroutines have to end
	}
}

// stop ends the process in order.
func (r *replica) stop() {
	if hub := r.remove(); hub != nil {
		if err := hub.Stop(); err != nil {
			r.world.problem("stopping %s: %v", r.name, err)
		}
		r.cutOff()
	}
}

// remove takes the process out of the world; nil: there is none.
func (r *replica) remove() *hubtest.Hub {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	hub := r.hub
	r.hub = nil
	r.epoch++
	return hub
}

func (r *replica) cutOff() {
	r.kill()
	r.world.net.Reset(r.name)
	r.world.net.Reset(atPeers(r.name))
}

// atPeers is the host at which a replica listens for the others: the paths of two replicas to each other differ.
func atPeers(name string) string { return name + "-peers" }

// alive lists the running replicas, frozen ones too.
func (w *world) alive() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.replicas {
		if r.hub != nil {
			names = append(names, r.name)
		}
	}
	return names
}

func (r *replica) running() bool {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	return r.hub != nil
}

// part parts it from the store, or heals that.
func (r *replica) part(parted bool) {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	for _, d := range r.doors {
		d.parted.set(parted)
	}
}

// freeze stops its process from hearing or saying anything, or lets it go on.
func (r *replica) freeze(frozen bool) {
	w := r.world
	r.frozen.set(frozen)
	var paths []*simnet.Path
	for _, other := range w.replicas {
		paths = append(paths, w.net.Path(r.name, atPeers(other.name)), w.net.Path(other.name, atPeers(r.name)))
	}
	for _, s := range w.sites {
		paths = append(paths, w.net.Path(s.host, r.name))
	}
	for _, path := range paths {
		if frozen {
			path.Stall()
		} else {
			path.Heal()
		}
	}
}

// ask calls the replica. A response of a process that was killed meanwhile is not heard, and one of a frozen process comes late.
func (r *replica) ask(do func(h *hubtest.Hub) error) (err error, heard bool) {
	w := r.world
	w.mu.Lock()
	hub, epoch := r.hub, r.epoch
	w.mu.Unlock()
	if opened := r.frozen.waits(); hub == nil || opened != nil {
		time.Sleep(time.Second)
		return errDown, true
	}
	err = do(hub)
	_ = r.frozen.pass(context.Background()) // until the heal at the latest
	w.mu.Lock()
	defer w.mu.Unlock()
	return err, r.epoch == epoch && !w.deaf()
}

func (w *world) anyReplica() *replica {
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	return w.replicas[w.shared.callers.IntN(len(w.replicas))]
}

// hosts are where the hub listens.
func (w *world) hosts() []string {
	if len(w.replicas) == 0 {
		return []string{hubHost}
	}
	var hosts []string
	for _, r := range w.replicas {
		hosts = append(hosts, r.name)
	}
	return hosts
}

// nextHub is the host that the cluster's worker dials next.
func (s *site) nextHub() string {
	hosts := s.world.hosts()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dials++
	return hosts[(s.dials+len(s.host))%len(hosts)]
}

// hubs returns the running processes.
func (w *world) hubs() []*hubtest.Hub {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*hubtest.Hub
	if w.hub != nil {
		all = append(all, w.hub)
	}
	for _, r := range w.replicas {
		if r.hub != nil {
			all = append(all, r.hub)
		}
	}
	return all
}

func (w *world) healReplicas() {
	w.loseQuorum(false)
	for _, r := range w.replicas {
		r.part(false)
		r.freeze(false) // also heals its ways to the others
	}
	for _, r := range w.replicas {
		if !r.running() {
			r.start()
		}
	}
}

func (w *world) loseQuorum(lost bool) {
	w.shared.claims.lost.set(lost)
	w.shared.registry.lost.set(lost)
}

// replicaFaults are those of a hub of several replicas.
func replicaFaults() []scenario {
	orphans := allowance{orphans: true}
	return []scenario{
		{fault: 40, name: "replicas without a fault", replicas: 3, run: undisturbed},
		{fault: 41, name: "replicas killed", replicas: 3, allowed: orphans, run: replicasKilled},
		{fault: 42, name: "replicas frozen", replicas: 3, allowed: orphans, run: replicasFrozen},
		{fault: 43, name: "replicas parted from the store", replicas: 3, allowed: orphans, run: replicasParted},
		{fault: 44, name: "quorum of the store lost", replicas: 3, allowed: orphans, run: quorumLost},
		{fault: 45, name: "replicas parted from each other", replicas: 3, allowed: orphans, run: peersParted},
		{fault: 46, name: "replicas restarted one by one", replicas: 3, allowed: orphans, run: rollingRestart},
		{fault: 47, name: "all kinds at once, with replicas", replicas: 3, allowed: orphans, run: mixedReplicas},
		{fault: 48, name: "replicas, and dispatches late", replicas: 3, allowed: orphans, run: lateBetweenReplicas},
		{fault: 49, name: "five replicas, and all kinds at once", replicas: 5, allowed: orphans, run: mixedReplicas},
	}
}

// withReplicas returns the faults of a hub of one process for one of several, without those that replicaFaults has counterparts of.
func withReplicas(of []scenario) []scenario {
	var all []scenario
	for _, sc := range of {
		switch sc.fault {
		case 0, 4, 5, 6, 20, 26:
			continue
		}
		sc.fault, sc.name, sc.replicas = 100+sc.fault, sc.name+", with replicas", 3
		sc.allowed.orphans = true
		all = append(all, sc)
	}
	return all
}

func (w *world) drawReplica(draw *rand.Rand) *replica { return w.replicas[draw.IntN(len(w.replicas))] }

func undisturbed(_ *world, draw *rand.Rand) {
	time.Sleep(between(draw, 10*time.Second, 40*time.Second))
}

func replicasKilled(w *world, draw *rand.Rand) {
	for range 4 {
		r := w.drawReplica(draw)
		r.die()
		time.Sleep(between(draw, 50*time.Millisecond, 20*time.Second))
		if !r.running() {
			r.start()
		}
		time.Sleep(between(draw, 100*time.Millisecond, 10*time.Second))
	}
}

func replicasFrozen(w *world, draw *rand.Rand) {
	for range 3 {
		r := w.drawReplica(draw)
		r.freeze(true)
		time.Sleep(between(draw, 200*time.Millisecond, 30*time.Second))
		r.freeze(false)
		time.Sleep(between(draw, 100*time.Millisecond, 10*time.Second))
	}
}

func replicasParted(w *world, draw *rand.Rand) {
	for range 3 {
		r := w.drawReplica(draw)
		r.part(true)
		time.Sleep(between(draw, 100*time.Millisecond, 20*time.Second))
		r.part(false)
		time.Sleep(between(draw, 100*time.Millisecond, 10*time.Second))
	}
}

func quorumLost(w *world, draw *rand.Rand) {
	for range 3 {
		w.loseQuorum(true)
		time.Sleep(between(draw, 100*time.Millisecond, 20*time.Second))
		if draw.IntN(2) == 0 {
			w.net.Path(w.anySite(draw).host, w.drawReplica(draw).name).Break()
		}
		w.loseQuorum(false)
		time.Sleep(between(draw, 100*time.Millisecond, 10*time.Second))
	}
}

// peersParted also cuts one direction alone.
func peersParted(w *world, draw *rand.Rand) {
	for range 5 {
		from, to := w.drawReplica(draw), w.drawReplica(draw)
		there, back := w.net.Path(from.name, atPeers(to.name)), w.net.Path(to.name, atPeers(from.name))
		cutOrStall(draw, there)
		if draw.IntN(2) == 0 {
			cutOrStall(draw, back)
		}
		time.Sleep(between(draw, 100*time.Millisecond, 20*time.Second))
		there.Heal()
		back.Heal()
		time.Sleep(between(draw, 100*time.Millisecond, 5*time.Second))
	}
}

func cutOrStall(draw *rand.Rand, path *simnet.Path) {
	if draw.IntN(2) == 0 {
		path.Cut()
	} else {
		path.Stall()
	}
}

func rollingRestart(w *world, draw *rand.Rand) {
	for _, r := range w.replicas {
		r.stop()
		time.Sleep(between(draw, 50*time.Millisecond, 5*time.Second))
		r.start()
		time.Sleep(between(draw, time.Second, 10*time.Second))
	}
}

// lateBetweenReplicas holds dispatches back while replicas, and workers, come and go.
func lateBetweenReplicas(w *world, draw *rand.Rand) {
	w.delayDispatches()
	for range 6 {
		switch r := w.drawReplica(draw); draw.IntN(3) {
		case 0:
			r.die()
			time.Sleep(between(draw, 50*time.Millisecond, 5*time.Second))
			r.start()
		case 1:
			w.anySite(draw).killWorker()
		default:
			cutOrStall(draw, w.net.Path(r.name, atPeers(w.drawReplica(draw).name)))
		}
		time.Sleep(between(draw, time.Second, 10*time.Second))
	}
}

// mixedReplicas injects a random fault every few seconds, without waiting for the previous one to end.
func mixedReplicas(w *world, draw *rand.Rand) {
	for range 16 {
		r, s := w.drawReplica(draw), w.anySite(draw)
		switch draw.IntN(10) {
		case 0, 1:
			if r.running() {
				r.die()
			} else {
				r.start()
			}
		case 2:
			r.freeze(draw.IntN(2) == 0)
		case 3:
			r.part(draw.IntN(2) == 0)
		case 4:
			w.loseQuorum(true)
			time.Sleep(between(draw, time.Second, 8*time.Second))
			w.loseQuorum(false)
		case 5:
			cutOrStall(draw, w.net.Path(r.name, atPeers(w.drawReplica(draw).name)))
		case 6:
			s.OnClaim(s.killWorker)
		case 7:
			w.net.Path(s.host, r.name).Cut()
		case 8:
			w.net.Path(s.host, r.name).Stall()
		default:
			w.net.Path(s.host, r.name).Break()
		}
		time.Sleep(between(draw, 500*time.Millisecond, 8*time.Second))
	}
}
