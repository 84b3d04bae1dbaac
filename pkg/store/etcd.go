// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"navix.sh/atoll/pkg/envelope"
)

const (
	// callTimeout bounds every call: longer than an election of etcd, shorter than a caller's patience.
	callTimeout = 4 * time.Second
	// attemptTimeout bounds one attempt of a read. The next one goes to another member; because a frozen one keeps its connection.
	attemptTimeout = time.Second
	// keepAlive is the interval of pings. etcd allows one in 5 s.
	keepAlive        = 6 * time.Second
	keepAliveTimeout = 3 * time.Second
	// pageSize is how many entries one response has: etcd serves nothing else while it builds one.
	pageSize = 500
	// etcd's defaults for --max-txn-ops, less the count of commits, and for --max-request-bytes, less what frames a request.
	maxOps   = 128 - 1
	maxBytes = 1536<<10 - 16<<10
)

var (
	// ErrUnavailable means that the store does not respond, as without a quorum. The outcome of a Commit is unknown.
	ErrUnavailable = errors.New("store: not available")
	// ErrSetBack means that the store is in an earlier state than this process has seen: what it knows is not in it. After it the store
	// does nothing.
	ErrSetBack = errors.New("store: it was set back to an earlier state than this process has seen: start anew")
	// ErrTooLarge means that a transaction is too large for the store. Nothing was changed.
	ErrTooLarge = errors.New("store: the transaction is too large")
	// ErrNone means that there is no store where one must be.
	ErrNone = errors.New("there is no store")
	// ErrMigrating means that a migration has not filled the store yet.
	ErrMigrating = errors.New("a migration into it has not ended; run it again to its end")
)

// EtcdOptions say where an etcd is, and which part of it a store is.
type EtcdOptions struct {
	Endpoints                 []string // URLs
	CertFile, KeyFile, CAFile string
	Username, Password        string
	Prefix                    string // of all stores of a hub, as /atoll
	Kind                      string // of the content, as claims; a part of every key
	Schema                    uint64 // of the content
	Sealer                    *envelope.Sealer
	// Migrating opens a store that a migration fills. Without it such a store is refused.
	Migrating bool
	// Existing opens a store that is there, and makes none: ErrNone.
	Existing bool
}

// Validate names what is wrong with the options.
func (o EtcdOptions) Validate() error {
	if len(o.Endpoints) == 0 || slices.Contains(o.Endpoints, "") {
		return fmt.Errorf("etcd endpoints: %q is not valid, want URLs with commas between them", strings.Join(o.Endpoints, ","))
	}
	secure := 0
	for _, endpoint := range o.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil || u.Host == "" || u.Port() == "" || u.Path != "" || u.RawQuery != "" || u.User != nil ||
			u.Scheme != "https" && u.Scheme != "http" {
			return fmt.Errorf("etcd endpoint: %q is not valid, want https://HOST:PORT", endpoint)
		}
		if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fmt.Errorf("etcd endpoint: %q is not valid, want https, or an address of loopback", endpoint)
		}
		if u.Scheme == "https" {
			secure++
		}
	}
	if secure != 0 && secure != len(o.Endpoints) {
		return fmt.Errorf("etcd endpoints: %q is not valid, want either https or http for all", strings.Join(o.Endpoints, ","))
	}
	if secure == 0 && (o.CertFile != "" || o.CAFile != "") {
		return errors.New("etcd certificate files need https endpoints")
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return errors.New("etcd client certificate: want both the certificate and its key")
	}
	if (o.Username == "") != (o.Password == "") {
		return errors.New("etcd user: want both a name and a password")
	}
	if !strings.HasPrefix(o.Prefix, "/") || strings.HasSuffix(o.Prefix, "/") || len(o.Prefix) > 128 {
		return fmt.Errorf("etcd prefix: %q is not valid, want 1 to 128 bytes that begin and do not end with /", o.Prefix)
	}
	return nil
}

// Etcd is a Store in etcd, shared by several processes. Entries' keys stand below "<prefix>/<kind>/"; revisions are etcd's.
type Etcd struct {
	client  *clientv3.Client
	options EtcdOptions
	base    string // of the entries' keys
	seal    sealing
	metrics *metrics
	lazies  *lazies
	counts  sealCounts

	setBack chan struct{} // closed once
	noted   sync.Once

	mu      sync.RWMutex // held for reading by calls
	closed  bool
	ending  chan struct{}
	failure atomic.Pointer[error] // of the last call, nil when etcd responded
	highest atomic.Uint64         // the highest revision of a response
	counted atomic.Uint64         // the highest number of commits of a response

	progress sync.Mutex
	written  Position // of this process's last commit
}

var _ Shared = (*Etcd)(nil)

// OpenEtcd opens the store of a kind below a prefix of an etcd, or creates it. Of an encrypted store every replica has the keys.
func OpenEtcd(ctx context.Context, o EtcdOptions) (*Etcd, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	e := &Etcd{
		options: o, base: o.Prefix + "/" + o.Kind + "/", seal: sealing{o.Sealer, o.Kind}, metrics: newMetrics(o.Kind),
		ending: make(chan struct{}), setBack: make(chan struct{}),
	}
	config := clientv3.Config{
		Endpoints: o.Endpoints, Username: o.Username, Password: o.Password, DialTimeout: callTimeout,
		DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAliveTimeout, PermitWithoutStream: true, Logger: zap.NewNop(),
	}
	var err error
	if config.TLS, err = o.tls(); err != nil {
		return nil, err
	}
	if e.client, err = clientv3.New(config); err != nil {
		return nil, fmt.Errorf("%s: %w", e, explain(err))
	}
	e.lazies = startLazies(e)
	if err := e.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", e, err), e.Close())
	}
	return e, nil
}

func (o EtcdOptions) tls() (*tls.Config, error) {
	if !strings.HasPrefix(o.Endpoints[0], "https:") {
		return nil, nil // plain text, on loopback
	}
	for _, file := range []string{o.CertFile, o.KeyFile, o.CAFile} {
		if file == "" {
			continue
		}
		if _, err := os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("etcd certificate: %w", err)
		}
	}
	info := transport.TLSInfo{CertFile: o.CertFile, KeyFile: o.KeyFile, TrustedCAFile: o.CAFile}
	config, err := info.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("etcd certificates: %w", err)
	}
	return config, nil
}

func (e *Etcd) String() string {
	return fmt.Sprintf("etcd %s, prefix %s/%s", strings.Join(e.options.Endpoints, ","), e.options.Prefix, e.options.Kind)
}

// etcdLayout is the entry about a store, beside its entries.
type etcdLayout struct {
	Schema    uint64 `json:"schema"`
	Encrypted bool   `json:"encrypted,omitempty"`
	Migrating bool   `json:"migrating,omitempty"`
}

func (e *Etcd) layoutKey() string { return e.options.Prefix + "/layout/" + e.options.Kind }

// prepare checks the layout. The first replica creates it.
func (e *Etcd) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	mine := etcdLayout{Schema: e.options.Schema, Encrypted: e.seal.sealer != nil, Migrating: e.options.Migrating}
	for {
		var found etcdLayout
		revision, err := e.layout(ctx, &found)
		switch {
		case err != nil:
			return err
		case revision != 0:
			return found.accepts(mine)
		case e.options.Existing:
			return ErrNone
		}
		if left, err := e.Range(ctx, "", "", 1); err != nil {
			return err
		} else if len(left) > 0 {
			return fmt.Errorf("%w: there are entries and no layout", ErrDamaged)
		}
		if err := e.setLayout(ctx, mine, 0); !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

func (l etcdLayout) accepts(mine etcdLayout) error {
	switch {
	case l.Schema > mine.Schema:
		return fmt.Errorf("it has schema %d and this build knows up to %d: %w", l.Schema, mine.Schema, ErrNewer)
	case l.Schema < mine.Schema:
		return fmt.Errorf("it has schema %d and this build needs %d: run the build in between first", l.Schema, mine.Schema)
	case l.Encrypted && !mine.Encrypted:
		return ErrEncrypted
	case !l.Encrypted && mine.Encrypted:
		return errors.New("it is not encrypted: migrate it to another prefix with --encryption-key-file, or give none")
	case l.Migrating && !mine.Migrating:
		return ErrMigrating
	case !l.Migrating && mine.Migrating:
		return errors.New("there is a store already, and no migration fills it")
	}
	return nil
}

// layout returns the revision of the layout; 0: there is none.
func (e *Etcd) layout(ctx context.Context, l *etcdLayout) (revision int64, err error) {
	response, err := e.read(ctx, e.layoutKey())
	if err != nil || len(response.Kvs) == 0 {
		return 0, err
	}
	if err := json.Unmarshal(response.Kvs[0].Value, l); err != nil {
		return 0, fmt.Errorf("%w: %s: %w", ErrDamaged, e.layoutKey(), err)
	}
	return response.Kvs[0].ModRevision, nil
}

func (e *Etcd) setLayout(ctx context.Context, l etcdLayout, revision int64) error {
	value, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encoding the layout: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := e.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(e.layoutKey()), "=", revision)).
		Then(clientv3.OpPut(e.layoutKey(), string(value))).Commit()
	if err != nil {
		return explain(err)
	}
	if !response.Succeeded {
		return ErrConflict
	}
	return nil
}

// EndMigration ends the migration that fills the stores of one etcd, all at once: they open without Migrating from now on.
func EndMigration(ctx context.Context, stores ...*Etcd) error {
	var conditions []clientv3.Cmp
	var changes []clientv3.Op
	for _, e := range stores {
		var l etcdLayout
		revision, err := e.layout(ctx, &l)
		if err != nil {
			return err
		}
		l.Migrating = false
		value, err := json.Marshal(l)
		if err != nil {
			return fmt.Errorf("encoding the layout: %w", err)
		}
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(e.layoutKey()), "=", revision))
		changes = append(changes, clientv3.OpPut(e.layoutKey(), string(value)))
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := stores[0].client.Txn(ctx).If(conditions...).Then(changes...).Commit()
	if err != nil {
		return explain(err)
	}
	if !response.Succeeded {
		return ErrConflict
	}
	return nil
}

// Schema is the version of the content's layout.
func (e *Etcd) Schema() uint64 { return e.options.Schema }

// Revision is the highest that this process has seen.
func (e *Etcd) Revision() (uint64, error) { return e.highest.Load(), nil }

// Position is how far a store has come.
type Position struct {
	Revision uint64
	// Commits counts the store's own commits, of builds that count them. Unlike a revision it does not rise where etcd is restored
	// from a snapshot with --bump-revision, nor by what others write to it.
	Commits uint64
}

// Committed is how far the store had come with this process's last commit; zero if it made none.
func (e *Etcd) Committed() Position {
	e.progress.Lock()
	defer e.progress.Unlock()
	return e.written
}

// Reached is how far the store has come now, whichever process wrote it.
func (e *Etcd) Reached(ctx context.Context) (Position, error) {
	before := e.counted.Load()
	response, err := e.read(ctx, e.commitsKey())
	if err != nil {
		return Position{}, err
	}
	at := Position{Revision: uint64(response.Header.Revision)}
	if len(response.Kvs) > 0 {
		at.Commits = uint64(response.Kvs[0].Version)
	}
	return at, e.countsOn(before, at)
}

// commitsKey is the entry that each commit writes: etcd counts its versions.
func (e *Etcd) commitsKey() string { return e.options.Prefix + "/commits/" + e.options.Kind }

// committed notes a commit of this process.
func (e *Etcd) committed(at Position) {
	e.progress.Lock()
	defer e.progress.Unlock()
	e.written.Revision, e.written.Commits = max(e.written.Revision, at.Revision), max(e.written.Commits, at.Commits)
}

// Failure is why the last call failed; nil when etcd responded.
func (e *Etcd) Failure() error {
	if err := e.failure.Load(); err != nil {
		return fmt.Errorf("%s: %w", e, *err)
	}
	return nil
}

// enter begins a call. The store closes after leave.
func (e *Etcd) enter() (leave func(), err error) {
	e.mu.RLock()
	if e.closed {
		e.mu.RUnlock()
		return nil, ErrClosed
	}
	select {
	case <-e.setBack:
		e.mu.RUnlock()
		return nil, ErrSetBack
	default:
		return e.mu.RUnlock, nil
	}
}

// SetBack is closed when etcd turns out to have been set back. The process has to start anew; because what it knows is of no use.
func (e *Etcd) SetBack() <-chan struct{} { return e.setBack }

// follows checks the revision of a response that is as late as etcd's quorum, against the highest one seen before the call.
func (e *Etcd) follows(before uint64, revision int64) error {
	if uint64(revision) >= before {
		e.saw(revision)
		return nil
	}
	return e.wasSetBack("revision", uint64(revision), before)
}

// countsOn checks the number of commits of such a response, which shows an etcd whose revisions rose as it was set back.
func (e *Etcd) countsOn(before uint64, at Position) error {
	if at.Commits < before {
		return e.wasSetBack("commit", at.Commits, before)
	}
	raise(&e.counted, int64(at.Commits))
	return nil
}

func (e *Etcd) wasSetBack(what string, at, before uint64) error {
	e.noted.Do(func() { close(e.setBack) })
	err := fmt.Errorf("%w: %s %d, after %d", ErrSetBack, what, at, before)
	e.failure.Store(&err)
	return err
}

// Close implements Store.
func (e *Etcd) Close() error {
	e.lazies.stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	close(e.ending)
	if err := e.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("closing %s: %w", e, err)
	}
	return nil
}

// responded notes whether etcd responded, and returns the error as callers know it: the caller's own, or a typed one.
func (e *Etcd) responded(ctx context.Context, err error) error {
	if err == nil {
		e.failure.Store(nil)
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err = explain(err)
	e.failure.Store(&err)
	return err
}

// saw notes the revision of a response.
func (e *Etcd) saw(revision int64) { raise(&e.highest, revision) }

func raise(highest *atomic.Uint64, revision int64) {
	for now := highest.Load(); uint64(revision) > now && !highest.CompareAndSwap(now, uint64(revision)); now = highest.Load() {
	}
}

// explain wraps an error of etcd. What it does not know is ErrUnavailable; because then it is about the way there.
func explain(err error) error {
	var known rpctypes.EtcdError
	switch {
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("%w: %w; raise --max-txn-ops and --max-request-bytes of etcd to their defaults", ErrTooLarge, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: etcd is at its quota: compact and defragment it, or raise --quota-backend-bytes, then disarm the alarm", err)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%w: the user needs readwrite on the prefix, with the / at its end", err)
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: etcd did not respond within %s: it has no quorum, or cannot be reached", ErrUnavailable, callTimeout)
	case errors.As(err, &known) && !errors.Is(err, rpctypes.ErrTimeout) && known.Code().String() != "Unavailable":
		return err
	default:
		return fmt.Errorf("%w: etcd: %w", ErrUnavailable, err)
	}
}
