// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// callTimeout bounds every call. It is longer than an election of etcd, and shorter than callers wait.
	callTimeout = 4 * time.Second
	// attemptTimeout bounds one attempt of a read. The next attempt uses another member, because a frozen member keeps its connection open.
	attemptTimeout = time.Second
	// failsAfter is how long etcd must not have responded for a caller's deadline to count as a failure of etcd. Callers may have less time
	// than callTimeout; a deadline that comes sooner than failsAfter says nothing about etcd.
	failsAfter = 500 * time.Millisecond
	// keepAlive is the interval of pings. etcd allows one ping in 5 s, and closes a connection that pings without a call.
	keepAlive        = 6 * time.Second
	keepAliveTimeout = 3 * time.Second
	// pageSize is the number of entries in one response. It is limited, because etcd serves nothing else while it builds a response.
	pageSize = 500
	// etcd's defaults for --max-txn-ops, minus the count of commits, and for --max-request-bytes, minus the framing of a request.
	maxOps   = 128 - 1
	maxBytes = 1536<<10 - 16<<10
)

var (
	// ErrUnavailable means that the store does not respond, for example without a quorum. The outcome of a Commit is unknown.
	ErrUnavailable = errors.New("store: not available")
	// ErrSetBack means that the store is in an earlier state than this process has seen, so that the process knows of writes that the store
	// does not contain. After it the store refuses every call.
	ErrSetBack = errors.New("store: it was set back to an earlier state than this process has seen: start anew")
	// ErrTooLarge means that a transaction is too large for the store. Nothing was changed.
	ErrTooLarge = errors.New("store: the transaction is too large")
	// ErrNone means that EtcdOptions.Existing is set and there is no store.
	ErrNone = errors.New("there is no store")
	// ErrMigrating means that a migration into the store has not finished.
	ErrMigrating = errors.New("a migration into it has not ended; run it again to its end")
)

// Etcd is a Store in etcd that several processes share. The keys of entries are below "<prefix>/<kind>/"; revisions are those of etcd.
type Etcd struct {
	client  *clientv3.Client
	options EtcdOptions
	base    string // prefix of the entries' keys
	seal    sealing
	metrics *metrics
	lazies  *lazies
	counts  sealCounts

	setBack chan struct{} // closed once
	noted   sync.Once

	mu      sync.RWMutex // held for reading by calls
	closed  bool
	ending  chan struct{}
	failure atomic.Pointer[error] // error of the last call, nil if etcd responded
	highest atomic.Uint64         // highest revision in a response
	counted atomic.Uint64         // highest number of commits in a response

	progress sync.Mutex
	written  Position // position of this process's last commit
}

var _ Shared = (*Etcd)(nil)

// OpenEtcd opens the store of a kind below a prefix in etcd, or creates it. Every replica needs the keys of an encrypted store.
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
		DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAliveTimeout, Logger: zap.NewNop(),
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

func (e *Etcd) String() string {
	return fmt.Sprintf("etcd %s, prefix %s/%s", strings.Join(e.options.Endpoints, ","), e.options.Prefix, e.options.Kind)
}

// etcdLayout is the entry that describes a store. It is kept outside of the store's entries.
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

// layout reads the layout and returns its revision, or 0 if there is none.
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

// EndMigration marks the migration into stores of one etcd as finished, atomically for all of them. They then open without Migrating.
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

// Schema returns the version of the content's layout.
func (e *Etcd) Schema() uint64 { return e.options.Schema }

// Failure returns the error of the last call, or nil if etcd responded.
func (e *Etcd) Failure() error {
	if err := e.failure.Load(); err != nil {
		return fmt.Errorf("%s: %w", e, *err)
	}
	return nil
}

// enter starts a call. Close waits until leave is called.
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

// responded records whether etcd responded to a call that began at the given time. It returns the error for the caller: that of the
// caller's own context, or a typed one.
func (e *Etcd) responded(ctx context.Context, began time.Time, err error) error {
	if err == nil {
		e.failure.Store(nil)
		return nil
	}
	ended := ctx.Err()
	if ended != nil {
		err = ended
	}
	failure := explain(err)
	late := errors.Is(err, context.DeadlineExceeded)
	if late && time.Since(began) >= failsAfter || !late && ended == nil {
		e.failure.Store(&failure)
	}
	if ended != nil {
		return ended
	}
	return failure
}

// saw records the revision of a response.
func (e *Etcd) saw(revision int64) { raise(&e.highest, revision) }

func raise(highest *atomic.Uint64, revision int64) {
	for now := highest.Load(); uint64(revision) > now && !highest.CompareAndSwap(now, uint64(revision)); now = highest.Load() {
	}
}

// explain wraps an error of etcd. It treats an unknown error as ErrUnavailable, because such an error concerns the connection to etcd.
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
		return fmt.Errorf("%w: etcd did not respond in time: it has no quorum, or cannot be reached", ErrUnavailable)
	case errors.As(err, &known) && known.Code().String() != "Unavailable":
		return err
	default:
		return fmt.Errorf("%w: etcd: %w", ErrUnavailable, err)
	}
}
