// SPDX-License-Identifier: Apache-2.0

package hubstate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"navix.sh/atoll/pkg/durable"
	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/store"
)

// Reasons for which a migration is refused.
var (
	ErrNothing = errors.New("there is no store of a hub")
	ErrRuns    = errors.New("a hub runs on it: stop every replica first")
)

const migratePrefix = "migrate-"

// Migration moves the stores of a hub to another place. No hub may run on the target, and none on the source during the last copy.
type Migration struct {
	From, To Place
	// Sealer has the keys of an encrypted source. If it is set, the target is encrypted.
	Sealer *envelope.Sealer
	// Online copies while hubs run on the source, and copies the rest after they have stopped.
	Online bool
	// Force moves existing files at the target aside.
	Force bool
	// Say reports progress. May be nil.
	Say func(text string)
}

// Migrated is the result of a migration.
type Migrated struct {
	Entries map[Kind]int
	Sums    map[Kind]string // SHA-256 of keys and values, the same for both sides
	// CutoverTime is how long no hub could run on the source: the time of the last copy and the comparison.
	CutoverTime time.Duration
}

// Run copies all entries, compares both sides, and gives the target's ledger a new id, so that a hub that starts on the outdated source is
// detected. It does not change the source. An interrupted migration can be run again.
func (m Migration) Run(ctx context.Context) (out Migrated, err error) {
	out = Migrated{Entries: map[Kind]int{}, Sums: map[Kind]string{}}
	if (m.From.Etcd == nil) == (m.To.Etcd == nil) {
		return out, fmt.Errorf("from %s to %s: one of the two must be bbolt, the other one etcd", m.From, m.To)
	}
	var to *target
	var from map[Kind]Store
	if m.Online {
		to, from, err = m.follow(ctx)
	} else {
		from, err = m.sources(ctx)
	}
	if err != nil {
		return out, errors.Join(fmt.Errorf("migrating from %s: %w", m.From, err), to.close())
	}
	began := time.Now()
	defer func() { err = errors.Join(err, closeAll(from)) }()
	if to == nil {
		to, err = m.target(ctx)
	}
	if err == nil {
		err = transfer(ctx, from, to.stores, &out)
	}
	if err == nil {
		err = to.complete(ctx)
	}
	out.CutoverTime = time.Since(began)
	if err = errors.Join(err, to.close()); err != nil {
		return out, fmt.Errorf("migrating to %s: %w", m.To, err)
	}
	return out, nil
}

func closeAll(stores map[Kind]Store) (err error) {
	for _, s := range stores {
		err = errors.Join(err, s.Close())
	}
	return err
}

var kinds = []Kind{Claims, Registry}

// sources opens both stores of the source. It fails if one does not exist.
func (m Migration) sources(ctx context.Context) (from map[Kind]Store, err error) {
	from = map[Kind]Store{}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(from))
		}
	}()
	for _, kind := range kinds {
		if from[kind], err = m.source(ctx, kind); err != nil {
			delete(from, kind)
			return from, err
		}
	}
	if etcd, is := from[Claims].(*store.Etcd); is {
		if held, err := etcd.Held(ctx); err != nil || held {
			return from, errors.Join(err, ErrRuns)
		}
	}
	return from, nil
}

// source opens a store. It tries without keys first, because opening a plain file with keys would encrypt it.
func (m Migration) source(ctx context.Context, kind Kind) (Store, error) {
	open := func(sealer *envelope.Sealer) (Store, error) { return m.From.Open(ctx, kind, sealer) }
	if m.From.Etcd != nil {
		open = func(sealer *envelope.Sealer) (Store, error) {
			o := m.From.etcd(kind, sealer)
			o.Existing = true
			s, err := store.OpenEtcd(ctx, o)
			if err != nil {
				return nil, fmt.Errorf("%w%s", err, etcdAdvice(err))
			}
			return s, nil
		}
	} else if _, err := os.Stat(kind.Path(m.From.Dir)); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNothing, kind.Path(m.From.Dir))
	}
	s, err := open(nil)
	if errors.Is(err, store.ErrEncrypted) && m.Sealer != nil {
		s, err = open(m.Sealer)
	}
	if errors.Is(err, store.ErrLocked) {
		err = fmt.Errorf("%w: %w", ErrRuns, err)
	}
	return s, err
}

// target is the destination of a migration. Hubs cannot open it before it is complete.
type target struct {
	stores map[Kind]Store
	etcd   []*store.Etcd
	stage  string // directory for files, which are moved into place once they are complete
	dir    string
	force  bool
}

// target opens the stores to fill. Files are filled in a directory of their own.
func (m Migration) target(ctx context.Context) (to *target, err error) {
	to = &target{stores: map[Kind]Store{}, dir: m.To.Dir, force: m.Force}
	defer func() {
		if err != nil {
			err = errors.Join(err, to.close())
			to = nil
		}
	}()
	if m.To.Etcd != nil {
		for _, kind := range kinds {
			o := m.To.etcd(kind, m.Sealer)
			o.Migrating = true
			s, err := store.OpenEtcd(ctx, o)
			if err != nil {
				return to, fmt.Errorf("%w%s", err, etcdAdvice(err))
			}
			to.stores[kind], to.etcd = s, append(to.etcd, s)
		}
		return to, nil
	}
	if err := free(m.To.Dir, m.Force); err != nil {
		return to, err
	}
	if err := durable.MkdirAll(m.To.Dir, 0o700); err != nil {
		return to, err
	}
	if to.stage, err = os.MkdirTemp(m.To.Dir, migratePrefix); err != nil {
		return to, err
	}
	for _, kind := range kinds {
		file, err := OpenSealed(to.stage, kind, m.Sealer)
		if err != nil {
			return to, err
		}
		to.stores[kind] = file
	}
	return to, nil
}

// complete makes the target usable for hubs.
func (t *target) complete(ctx context.Context) error {
	if t.stage == "" {
		return store.EndMigration(ctx, t.etcd...)
	}
	err := closeAll(t.stores)
	clear(t.stores)
	if err == nil {
		err = free(t.dir, t.force)
	}
	if err != nil {
		return err
	}
	return install(t.stage, t.dir)
}

func (t *target) close() error {
	if t == nil {
		return nil
	}
	err := closeAll(t.stores)
	if t.stage != "" {
		err = errors.Join(err, os.RemoveAll(t.stage))
	}
	return err
}

// transfer makes the target equal to the source, compares both, and renames the ledger.
func transfer(ctx context.Context, from, to map[Kind]Store, out *Migrated) error {
	reached, err := progress(ctx, from[Claims])
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		if _, err := mirror(ctx, from[kind], to[kind], moved); err != nil {
			return fmt.Errorf("copying %s: %w", kind, err)
		}
	}
	for _, kind := range kinds {
		n, sum, err := compare(ctx, from[kind], to[kind])
		if err != nil {
			return fmt.Errorf("comparing %s: %w", kind, err)
		}
		out.Entries[kind], out.Sums[kind] = n, sum
	}
	return rename(ctx, to[Claims], to[Registry], reached)
}

// progress returns the revision of a ledger in the form that workers remember.
func progress(ctx context.Context, claims Store) (uint64, error) {
	if etcd, is := claims.(*store.Etcd); is {
		at, err := etcd.Reached(ctx)
		return at.Revision, err
	}
	if file, is := claims.(*store.Bolt); is {
		return file.Revision()
	}
	return 0, fmt.Errorf("%T has no revision", claims)
}

// rename gives the ledger a new id. The marks that workers have of the former ledger are then ignored, unless they are beyond what was
// copied, which means that a hub continued on the source.
func rename(ctx context.Context, claims, registry store.Store, reached uint64) error {
	ledger, err := HoldLedger(ctx, claims)
	if err != nil || ledger.Value == nil {
		return err // no hub has started on it
	}
	identity, err := HoldIdentity(ctx, registry)
	if err != nil {
		return err
	}
	next := *ledger.Value
	if identity.Value != nil && identity.Value.ID != next.ID {
		return nil // the next hub to start detects which of the two was lost
	}
	next.Former, next.Moved = next.FormerOf(""), &Mark{ID: next.ID, Revision: reached}
	next.ID = rand.Text()
	if _, err := SwapLedger(ctx, claims, ledger.Revision, next); err != nil {
		return err
	}
	if identity.Value == nil {
		return nil
	}
	_, err = SwapIdentity(ctx, registry, identity.Revision, Identity{ID: next.ID, Epoch: identity.Value.Epoch})
	return err
}
