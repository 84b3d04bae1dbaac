// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/telemetry"
)

// ErrDamaged means that a record or an index entry cannot be read. The hub never writes such an entry. The error concerns no other entry.
var ErrDamaged = errors.New("damaged")

// Ledger reads and writes records. It decides nothing.
type Ledger struct {
	store    store.Store
	accounts accounts
}

// New returns a Ledger that is kept in a store.
func New(s store.Store) *Ledger { return &Ledger{store: s} }

// Held is a record with the revision at which it was read or written. The zero value means that there is no record.
type Held struct {
	Record   *Record
	Revision uint64
	size     int
}

// Load reads the record of a key.
func (l *Ledger) Load(ctx context.Context, hash string) (Held, error) {
	entry, ok, err := l.store.Get(ctx, ClaimPrefix+hash)
	if err != nil || !ok {
		return Held{}, wrapLoad(err)
	}
	return parse(hash, entry)
}

func parse(hash string, entry store.Entry) (Held, error) {
	r := &Record{}
	if err := json.Unmarshal(entry.Value, r); err != nil {
		return Held{}, fmt.Errorf("claim %s in the store is %w: %w", hash, ErrDamaged, err)
	}
	if err := timestamppb.New(r.CreatedAt).CheckValid(); err != nil {
		return Held{}, fmt.Errorf("claim %s in the store is %w: %w", hash, ErrDamaged, err)
	}
	return Held{r, entry.Revision, len(entry.Value)}, nil
}

func wrapLoad(err error) error {
	if err != nil {
		return fmt.Errorf("reading claim: %w", err)
	}
	return nil
}

// Save replaces old by new, and writes extra in the same transaction.
func (l *Ledger) Save(ctx context.Context, hash string, old Held, new *Record, extra ...store.Put) (Held, error) {
	return l.write(ctx, hash, old, new, false, extra...)
}

// SaveLazily is Save for writes without a waiting caller.
func (l *Ledger) SaveLazily(ctx context.Context, hash string, old Held, new *Record, extra ...store.Put) (Held, error) {
	return l.write(ctx, hash, old, new, true, extra...)
}

func (l *Ledger) write(ctx context.Context, hash string, old Held, new *Record, lazy bool, extra ...store.Put) (_ Held, err error) {
	ctx, span := telemetry.Start(ctx, "ledger write")
	defer func() { telemetry.End(span, err) }()
	if span.IsRecording() {
		span.SetAttributes(telemetry.KeyHash.String(hash), telemetry.State.String(string(new.State)),
			telemetry.Cluster.String(new.Cluster), telemetry.Attempt.Int(int(new.Attempt)))
	}
	txn, err := plan(hash, old, new)
	if err != nil {
		return Held{}, err
	}
	txn.Puts, txn.Lazy = append(txn.Puts, extra...), lazy
	revision, err := l.store.Commit(ctx, txn)
	if err != nil {
		return Held{}, fmt.Errorf("writing claim: %w", err)
	}
	written := Held{new, revision, len(txn.Puts[0].Value)} // the record is the first
	l.accounts.move(old, written)
	return written, nil
}

// Drop removes a record with its indexes.
func (l *Ledger) Drop(ctx context.Context, hash string, old Held) error {
	txn, err := plan(hash, old, nil)
	if err != nil {
		return err
	}
	if _, err := l.store.Commit(ctx, txn); err != nil {
		return fmt.Errorf("dropping claim: %w", err)
	}
	l.accounts.move(old, Held{})
	return nil
}

// ByID returns the entry of a sandbox id: the zero value, at revision 0, if it has no key or is unknown.
func (l *Ledger) ByID(ctx context.Context, id string) (r IDRecord, revision uint64, err error) {
	entry, ok, err := l.store.Get(ctx, IDPrefix+id)
	if err != nil || !ok {
		return IDRecord{}, 0, wrapLoad(err)
	}
	if err := json.Unmarshal(entry.Value, &r); err != nil {
		return IDRecord{}, 0, fmt.Errorf("sandbox %s in the store is %w: %w", id, ErrDamaged, err)
	}
	return r, entry.Revision, nil
}

// Ended returns the terminal record of a sandbox with a key, or nil if there is none.
func (l *Ledger) Ended(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	r, _, err := l.ByID(ctx, id)
	if err != nil || len(r.Ended) == 0 {
		return nil, err
	}
	s := &sandboxv1.Sandbox{}
	return s, unmarshal(r.Ended, s, "terminal record")
}

// Terminal returns the terminal record of a claim: the sandbox's own if it has arrived, and otherwise the hub's.
func (l *Ledger) Terminal(ctx context.Context, r *Record) (*sandboxv1.Sandbox, error) {
	if r.SandboxID != "" {
		if s, err := l.Ended(ctx, r.SandboxID); s != nil || err != nil {
			return s, err
		}
	}
	s := &sandboxv1.Sandbox{}
	return s, unmarshal(r.Terminal, s, "terminal record")
}

// PutID returns the write of an entry that maps a sandbox id to its claim.
func PutID(id string, r IDRecord) (store.Put, error) {
	value, err := json.Marshal(r)
	if err != nil {
		return store.Put{}, fmt.Errorf("encoding sandbox %s: %w", id, err)
	}
	return store.Put{Key: IDPrefix + id, Value: value}, nil
}

// Due is a record, or an entry of a sandbox id, that is due for a check.
type Due struct {
	index, subject string
	At             time.Time
	KeyHash        string // set for a record; empty: an entry of a sandbox id
}

// Due iterates over the entries with the time of their next check, earliest first. For a damaged entry it yields an error and continues. An
// error of the store ends it.
func (l *Ledger) Due(ctx context.Context) iter.Seq2[Due, error] {
	return func(yield func(Due, error) bool) {
		for entry, err := range store.All(ctx, l.store, expirePrefix, eachPage) {
			if err != nil {
				yield(Due{}, fmt.Errorf("reading what expires: %w", err))
				return
			}
			if !yield(dueOf(entry.Key)) {
				return
			}
		}
	}
}

func dueOf(index string) (Due, error) {
	at, subject, err := parseExpireKey(index)
	if err != nil {
		return Due{}, err
	}
	due := Due{index: index, subject: subject, At: at}
	if hash, ok := strings.CutPrefix(subject, ClaimPrefix); ok {
		due.KeyHash = hash
	}
	return due, nil
}

// Of reports whether a record expires at the time of the entry.
func (d Due) Of(r *Record) bool { return r != nil && expireKey(r.ExpireAt, d.subject) == d.index }

// DropDue drops the entry. For a sandbox id, it drops the id's entry as well.
func (l *Ledger) DropDue(ctx context.Context, d Due) error {
	txn := store.Txn{Deletes: []string{d.index}}
	if d.KeyHash == "" {
		txn.Deletes = append(txn.Deletes, d.subject)
	}
	if _, err := l.store.Commit(ctx, txn); err != nil {
		return fmt.Errorf("dropping what has expired: %w", err)
	}
	return nil
}

// Open is a claim that the hub itself pursues.
type Open struct {
	KeyHash  string
	Replica  string // the replica that pursues it; empty with one replica
	Revision uint64 // revision of its latest write
}

// Open lists the claims that the hub itself pursues.
func (l *Ledger) Open(ctx context.Context) ([]Open, error) {
	var open []Open
	for entry, err := range store.All(ctx, l.store, openPrefix, store.MaxRange) {
		if err != nil {
			return nil, fmt.Errorf("reading open claims: %w", err)
		}
		open = append(open, Open{strings.TrimPrefix(entry.Key, openPrefix), string(entry.Value), entry.Revision})
	}
	return open, nil
}

// Each calls do with every record until do returns an error. For a damaged record, do gets an error instead.
func (l *Ledger) Each(ctx context.Context, do func(hash string, h Held, damaged error) error) error {
	for entry, err := range store.All(ctx, l.store, ClaimPrefix, eachPage) {
		if err != nil {
			return fmt.Errorf("reading the ledger: %w", err)
		}
		hash := strings.TrimPrefix(entry.Key, ClaimPrefix)
		h, damaged := parse(hash, entry)
		if err := do(hash, h, damaged); err != nil {
			return err
		}
	}
	return nil
}

const eachPage = 1000

// ExpireID returns the write that makes a sandbox id's entry expire at a time.
func ExpireID(at time.Time, id string) store.Put { return store.Put{Key: expireKey(at, IDPrefix+id)} }

// KeepEnded stores, until a time, the terminal record of a sandbox that is not, or no longer, the sandbox of its key.
func (l *Ledger) KeepEnded(ctx context.Context, hash string, sandbox *sandboxv1.Sandbox, revision uint64, until time.Time) error {
	put, err := PutID(sandbox.GetId(), IDRecord{KeyHash: hash, Ended: Marshal(sandbox)})
	if err != nil {
		return err
	}
	_, err = l.store.Commit(ctx, store.Txn{
		If:   []store.Condition{{Key: put.Key, Revision: revision}},
		Puts: []store.Put{put, ExpireID(until, sandbox.GetId())},
	})
	return err
}
