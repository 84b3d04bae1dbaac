// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"navix.sh/atoll/pkg/durable/powercut"
	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/store"
)

// TestAcknowledgedWritesSurviveAPowerCut (I2): what was acknowledged exists after a power cut or kill, and no transaction in part.
func TestAcknowledgedWritesSurviveAPowerCut(t *testing.T) {
	powercut.Run(t, powercut.Case{Do: writeTransactions, Check: checkTransactions})
}

// TestANewFileSurvivesAPowerCut: also one whose creating process was killed before it was done.
func TestANewFileSurvivesAPowerCut(t *testing.T) {
	powercut.Run(t, powercut.Case{
		Restart: true,
		Do: func(dir string, mark func(string)) error {
			s, err := store.OpenBolt(filepath.Join(dir, "s.db"), "test")
			if err != nil {
				return err
			}
			return errors.Join(commit(s, 0, 1, mark), s.Close())
		},
		Check: func(dir string, marks []string) error { return checkFile(filepath.Join(dir, "s.db"), marks) },
	})
}

// TestEncryptingSurvivesAPowerCut: a plain file that is being encrypted, and the writes after that, lose nothing.
func TestEncryptingSurvivesAPowerCut(t *testing.T) {
	sealer := sealerOf(t, keyA)
	powercut.Run(t, powercut.Case{
		Do: func(dir string, mark func(string)) error {
			path := filepath.Join(dir, "s.db")
			s, err := store.OpenBolt(path, "test")
			if err != nil {
				return err
			}
			if err := errors.Join(commit(s, 0, 1, mark), commit(s, 1, 9000, mark), s.Close()); err != nil {
				return err
			}
			if s, err = store.OpenSealed(path, "test", sealer); err != nil {
				return err
			}
			return errors.Join(commit(s, 2, 100, mark), s.Close())
		},
		Check: func(dir string, marks []string) error {
			return checkFileSealed(filepath.Join(dir, "s.db"), sealer, marks)
		},
	})
}

// upgrade brings every value to schema 2.
func upgrade(m *store.Migrating) error {
	return m.Each("", func(key string, value []byte) error { return m.Put(key, append([]byte("2"), value...)) })
}

const (
	alone   = 3 // transactions that commit one after the other
	grouped = 9 // and at once
)

// writeTransactions commits transactions with two entries each; those that come alone also move a third.
func writeTransactions(dir string, mark func(string)) error {
	path := filepath.Join(dir, "new", "s.db")
	s, err := store.OpenBolt(path, "test")
	if err != nil {
		return err
	}
	for i := range alone {
		if err := commit(s, i, 1+i*30_000, mark); err != nil { // the file grows
			return err
		}
	}
	var group sync.WaitGroup
	errs := make([]error, grouped)
	for i := range grouped {
		group.Go(func() { errs[i] = commit(s, alone+i, 100, mark) })
	}
	group.Wait()
	if err := errors.Join(append(errs, s.Close())...); err != nil {
		return err
	}
	if s, err = store.OpenBolt(path, "test", upgrade); err != nil {
		return err
	}
	mark("upgraded")
	return s.Close()
}

func commit(s store.Store, i, size int, mark func(string)) error {
	id := strconv.Itoa(i)
	value := []byte(strings.Repeat(id, size))
	txn := store.Txn{Puts: []store.Put{{Key: "a/" + id, Value: value}, {Key: "b/" + id, Value: value}}, Lazy: i > alone}
	if i < alone {
		txn.Puts = append(txn.Puts, store.Put{Key: "at/" + id})
		txn.Deletes = []string{"at/" + strconv.Itoa(i-1)}
	}
	if _, err := s.Commit(context.Background(), txn); err != nil {
		return err
	}
	mark(id)
	return nil
}

func checkTransactions(dir string, marks []string) error {
	return checkFile(filepath.Join(dir, "new", "s.db"), marks, upgrade)
}

// checkFile opens what is left, which fails if it is damaged.
func checkFile(path string, marks []string, migrations ...store.Migration) (err error) {
	return checkFileSealed(path, nil, marks, migrations...)
}

func checkFileSealed(path string, sealer *envelope.Sealer, marks []string, migrations ...store.Migration) (err error) {
	s, err := store.OpenSealed(path, "test", sealer, migrations...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	ctx := context.Background()
	acknowledged := map[string]bool{}
	for _, id := range marks {
		acknowledged[id] = true
	}
	at := ""
	for i := range alone + grouped {
		id := strconv.Itoa(i)
		a, hasA, errA := s.Get(ctx, "a/"+id)
		b, hasB, errB := s.Get(ctx, "b/"+id)
		_, hasAt, errAt := s.Get(ctx, "at/"+id)
		if hasAt {
			at += id
		}
		if err := errors.Join(errA, errB, errAt); err != nil {
			return err
		}
		if hasA != hasB || string(a.Value) != string(b.Value) {
			return fmt.Errorf("transaction %s is there in part", id)
		}
		if acknowledged[id] && !hasA {
			return fmt.Errorf("transaction %s was acknowledged and is lost", id)
		}
	}
	if len(at) > 1 || acknowledged["0"] && at == "" {
		return fmt.Errorf("an entry that was moved is at %q", at)
	}
	// The file that is left takes writes.
	if _, err := s.Commit(ctx, store.Txn{Puts: []store.Put{{Key: "after"}}}); err != nil {
		return fmt.Errorf("writing after the cut: %w", err)
	}
	return nil
}
