// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/hashicorp/memberlist"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/pace"
)

const (
	// joinEvery is how often a replica that knows no other replica tries to join, and rejoinEvery how often every replica does.
	joinEvery   = 2 * time.Second
	rejoinEvery = 20 * time.Second
	// updateEvery is how often a changed load is published and the keyring is reread.
	updateEvery  = 5 * time.Second
	leaveTimeout = 2 * time.Second
	lookup       = 5 * time.Second
	// reclaim is how long the name of a dead replica is reserved for its address. It is short, because a restarted Pod has another address.
	reclaim = 5 * time.Second
	// maxMembers bounds the known replicas, and maxAddresses the addresses of a name.
	maxMembers   = 256
	maxAddresses = 256
	maxVersion   = 100
	maxAddress   = 260
	// DefaultPort is the default port of gossip.
	DefaultPort = "7946"
)

// Options configure Members. Name, Bind, Peer and Log are required.
type Options struct {
	Name string
	// Bind is the host:port of gossip, UDP and TCP. Without a host it listens on all addresses, and advertises a private one.
	Bind string
	// Join are names or addresses of replicas, with or without a port. A name may have many addresses.
	Join []string
	// KeyringFile contains keys of 16, 24 or 32 bytes in base64, one per line. The first one encrypts. Without a file, gossip is not
	// encrypted.
	KeyringFile string
	// Peer is the host:port at which other replicas call this one. The default host is that of gossip.
	Peer    string
	Version string
	// Load returns the load of the replica, which is the number of attached clusters; nil: 0.
	Load func() int
	// Degraded reports whether this replica cannot do what others can, for example because it lacks the store; nil: it is not degraded.
	Degraded func() bool
	Log      logr.Logger
}

// Member is a replica that is alive according to gossip.
type Member struct {
	Name    string
	Address string // of its peer port; empty: it published none that is valid
	Version string
	Load    int
	// Degraded means that the replica reports that it cannot do what others can.
	Degraded bool
}

// meta is the metadata that a replica publishes about itself.
type meta struct {
	Peer     string `json:"p"`
	Version  string `json:"v,omitempty"`
	Load     int    `json:"l,omitempty"`
	Degraded bool   `json:"d,omitempty"`
}

// Members is this replica's membership in the group of replicas.
type Members struct {
	opts    Options
	list    *memberlist.Memberlist
	ring    *ring // nil: gossip is plain
	meta    atomic.Pointer[[]byte]
	changed chan struct{}

	mu    sync.Mutex // a leaf lock: memberlist calls events while it holds its own lock
	alive map[string]known
}

// known is a live replica. It is a copy, because memberlist modifies its own data without notice.
type known struct {
	Member
	gossip string // address
}

// Start joins gossip. Run maintains the membership, and ends it.
func Start(o Options) (*Members, error) {
	m := &Members{opts: o, changed: make(chan struct{}, 1), alive: map[string]known{}}
	if o.Name == "" || len(o.Name) > memberNameLimit {
		return nil, fmt.Errorf("the replica's name %q is not valid, want 1 to %d bytes", o.Name, memberNameLimit)
	}
	if _, _, err := net.SplitHostPort(o.Peer); err != nil || len(o.Peer) > maxAddress {
		return nil, fmt.Errorf("the peer address %q is not valid, want host:port of at most %d bytes", o.Peer, maxAddress)
	}
	host, port, err := splitBind(o.Bind)
	if err != nil {
		return nil, err
	}
	config := memberlist.DefaultLANConfig()
	config.Name, config.BindAddr, config.BindPort, config.AdvertisePort = o.Name, host, port, port
	config.DeadNodeReclaimTime = reclaim
	config.Delegate, config.Events, config.Conflict = delegate{m}, events{m}, conflicts{o.Log}
	config.Logger = log.New(newLogWriter(o.Log), "", 0)
	if o.KeyringFile != "" {
		if m.ring, err = openRing(o.KeyringFile, o.Log); err != nil {
			return nil, err
		}
		config.Keyring = m.ring.keys
	}
	m.tell()
	bounded, err := newTransport(host, port, config.Logger)
	if err != nil {
		return nil, fmt.Errorf("starting gossip on %s: %w", o.Bind, err)
	}
	config.Transport = bounded
	if port == 0 {
		config.BindPort, config.AdvertisePort = bounded.GetAutoBindPort(), bounded.GetAutoBindPort()
	}
	if m.list, err = memberlist.Create(config); err != nil {
		_ = bounded.Shutdown()
		return nil, fmt.Errorf("starting gossip on %s: %w", o.Bind, err)
	}
	return m, nil
}

// memberNameLimit is that of a DNS label; because names are shown and compared.
const memberNameLimit = 253

func splitBind(bind string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(bind)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("the gossip address %q is not valid, want host:port", bind)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return host, port, nil
}

// Address is the host:port of this replica's gossip.
func (m *Members) Address() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.alive[m.opts.Name].gossip
}

// Peers returns the live replicas, including this one, in no particular order.
func (m *Members) Peers() []Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Member, 0, len(m.alive))
	for _, one := range m.alive {
		out = append(out, one.Member)
	}
	return out
}

// Changed returns a channel that receives a value after replicas joined, left or changed their metadata.
func (m *Members) Changed() <-chan struct{} { return m.changed }

// Run joins the other replicas until ctx ends, and then leaves.
func (m *Members) Run(ctx context.Context) error {
	join, update := time.NewTimer(0), time.NewTicker(updateEvery)
	defer update.Stop()
	defer join.Stop()
	for {
		select {
		case <-ctx.Done():
			return m.leave()
		case <-join.C:
			m.join(ctx)
			pause := rejoinEvery
			if len(m.Peers()) < 2 {
				pause = joinEvery
			}
			join.Reset(pause)
		case <-update.C:
			if m.ring != nil {
				m.ring.reread()
			}
			if m.tell() {
				if err := m.list.UpdateNode(leaveTimeout); err != nil {
					m.opts.Log.V(1).Info("Could not tell the load", "reason", err.Error())
				}
			}
		}
	}
}

// Close ends gossip without announcing it, if Run was not called. It may be called repeatedly.
func (m *Members) Close() error { return m.list.Shutdown() }

func (m *Members) leave() error {
	err := m.list.Leave(leaveTimeout)
	if err != nil {
		m.opts.Log.Info("Could not say goodbye to the other replicas", "reason", err.Error())
	}
	if err := m.list.Shutdown(); err != nil {
		return fmt.Errorf("ending gossip: %w", err)
	}
	return nil
}

// join joins the addresses of the names that are not members yet.
func (m *Members) join(ctx context.Context) {
	there := map[string]bool{}
	m.mu.Lock()
	for _, one := range m.alive {
		there[one.gossip] = true
	}
	m.mu.Unlock()
	var missing []string
	for _, name := range m.opts.Join {
		addresses, err := resolve(ctx, name)
		if err != nil && ctx.Err() == nil {
			m.opts.Log.Info("Cannot resolve a name to join by", "name", name, "reason", err.Error())
		}
		for _, address := range addresses {
			if !there[address] && len(missing) < maxAddresses {
				there[address] = true
				missing = append(missing, address)
			}
		}
	}
	if len(missing) == 0 || ctx.Err() != nil {
		return
	}
	if n, err := m.list.Join(missing); err != nil {
		m.opts.Log.V(1).Info("Could not join some replicas", "joined", n, "of", len(missing), "reason", err.Error())
	}
}

// resolve returns the addresses of a name, with ports.
func resolve(ctx context.Context, name string) (addresses []string, err error) {
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		host, port = strings.Trim(name, "[]"), DefaultPort
	}
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	found, err := net.DefaultResolver.LookupHost(ctx, host)
	for _, one := range found {
		addresses = append(addresses, net.JoinHostPort(one, port))
	}
	slices.Sort(addresses)
	return addresses, err
}

// tell encodes the metadata of this replica, and reports whether it changed.
func (m *Members) tell() (changed bool) {
	is := meta{Peer: m.opts.Peer, Version: m.opts.Version[:min(len(m.opts.Version), maxVersion)]}
	if m.opts.Load != nil {
		is.Load = m.opts.Load()
	}
	is.Degraded = m.opts.Degraded != nil && m.opts.Degraded()
	told, err := json.Marshal(is)
	if err != nil { // the version is not valid text
		m.opts.Log.Error(err, "Cannot tell about this replica")
		return false
	}
	was := m.meta.Swap(&told)
	return was == nil || string(*was) != string(told)
}

var errMeta = errors.New("what the replica tells is not valid")

// read parses the metadata of a replica whose gossip address is given.
func read(told []byte, at net.IP) (Member, error) {
	var is meta
	if len(told) > memberlist.MetaMaxSize {
		return Member{}, fmt.Errorf("%w: %d bytes, want at most %d", errMeta, len(told), memberlist.MetaMaxSize)
	}
	if err := json.Unmarshal(told, &is); err != nil {
		return Member{}, fmt.Errorf("%w: %w", errMeta, err)
	}
	host, port, err := net.SplitHostPort(is.Peer)
	if err != nil || port == "" || len(is.Peer) > maxAddress {
		return Member{}, fmt.Errorf("%w: peer address %q, want host:port", errMeta, is.Peer)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = at.String()
	}
	return Member{
		Address: net.JoinHostPort(host, port), Version: is.Version[:min(len(is.Version), maxVersion)], Load: max(0, is.Load),
		Degraded: is.Degraded,
	}, nil
}

// delegate provides this replica's metadata to memberlist, and nothing else.
type delegate struct{ m *Members }

func (d delegate) NodeMeta(limit int) []byte {
	if told := *d.m.meta.Load(); len(told) <= limit {
		return told
	}
	return nil
}
func (delegate) NotifyMsg([]byte)                {}
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }
func (delegate) LocalState(bool) []byte          { return nil }
func (delegate) MergeRemoteState([]byte, bool)   {}

// events receives changes from memberlist.
type events struct{ m *Members }

func (e events) note() {
	select {
	case e.m.changed <- struct{}{}:
	default:
	}
}

// keep stores the metadata of a replica. It ignores new replicas beyond maxMembers.
func (e events) keep(n *memberlist.Node) {
	one, err := read(n.Meta, n.Addr)
	if err != nil {
		e.m.opts.Log.V(1).Info("A replica tells of itself what is not valid", "replica", n.Name, "reason", err.Error())
	}
	one.Name = strings.Clone(n.Name)
	e.m.mu.Lock()
	if _, has := e.m.alive[n.Name]; has || len(e.m.alive) < maxMembers {
		e.m.alive[one.Name] = known{one, n.Address()}
	}
	e.m.mu.Unlock()
	e.note()
}

func (e events) NotifyJoin(n *memberlist.Node) {
	e.m.opts.Log.Info("A replica is alive", "replica", n.Name, "address", n.Address())
	e.keep(n)
}
func (e events) NotifyLeave(n *memberlist.Node) {
	e.m.opts.Log.Info("A replica is gone", "replica", n.Name, "address", n.Address())
	e.m.mu.Lock()
	delete(e.m.alive, n.Name)
	e.m.mu.Unlock()
	e.note()
}
func (e events) NotifyUpdate(n *memberlist.Node) { e.keep(n) }

// conflicts reports two replicas with the same name.
type conflicts struct{ log logr.Logger }

func (c conflicts) NotifyConflict(existing, other *memberlist.Node) {
	c.log.Info("Two replicas have one name; give each its own", "replica", existing.Name, "address", existing.Address(),
		"other", other.Address())
}

// logWriter forwards memberlist's log. It logs memberlist's errors and warnings as info, because they need a person only if they last, and
// all other lines as details. It limits the rate of errors and warnings, because strangers can cause them.
type logWriter struct {
	log   logr.Logger
	paces *pace.Pace[struct{}]
}

func newLogWriter(log logr.Logger) logWriter {
	return logWriter{log, pace.New[struct{}](pace.Limits{Rate: linesPerSecond, Burst: 5 * time.Second}, clock.RealClock{})}
}

func (w logWriter) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if !strings.HasPrefix(text, "[ERR]") && !strings.HasPrefix(text, "[WARN]") {
		w.log.V(2).Info(text)
		return len(line), nil
	}
	if w.paces.Take(struct{}{}, 1) > 0 {
		w.paces.Take(struct{}{}, -1) // give back the charge of a line that is not written
		return len(line), nil
	}
	w.log.Info(text)
	return len(line), nil
}
