// SPDX-License-Identifier: Apache-2.0

package hubstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/store"
)

// Kind is one of the files.
type Kind string

// The files.
const (
	Claims   Kind = "claims"
	Registry Kind = "registry"
)

// Path is the file's path in a hub's data directory.
func (k Kind) Path(dir string) string { return filepath.Join(dir, string(k)+".db") }

// migrations of each file, oldest first. The schema of a file is the number of its migrations plus one.
var migrations = map[Kind][]store.Migration{
	Claims:   {nameLedger},
	Registry: {nameLedger},
}

// nameLedger migrates a file from schema 1, which has no id that shows which files belong together. Files that are migrated do belong
// together.
func nameLedger(m *store.Migrating) error {
	value, err := json.Marshal(Identity{ID: unnamed})
	if err != nil {
		return fmt.Errorf("encoding the ledger's name: %w", err)
	}
	return m.Put(LedgerKey, value)
}

// Open opens an unencrypted file, or creates it. The error says what the operator can do.
func Open(dir string, kind Kind) (*store.Bolt, error) { return OpenSealed(dir, kind, nil) }

// OpenSealed opens or creates a file with encrypted values. It encrypts a file that is not encrypted.
func OpenSealed(dir string, kind Kind, sealer *envelope.Sealer) (*store.Bolt, error) {
	file, err := store.OpenSealed(kind.Path(dir), string(kind), sealer, migrations[kind]...)
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, advice(kind, err))
	}
	return file, nil
}

// Rewrite replaces both files of a stopped hub with copies that are encrypted with the current key of to, or plain if to is nil. from has
// the keys of the existing files.
func Rewrite(dir string, from, to *envelope.Sealer) error {
	for _, kind := range []Kind{Registry, Claims} {
		if err := store.Rewrite(kind.Path(dir), string(kind), from, to, migrations[kind]...); err != nil {
			return fmt.Errorf("%w%s", err, advice(kind, err))
		}
	}
	return nil
}

func advice(kind Kind, err error) string {
	switch {
	case errors.Is(err, store.ErrEncrypted):
		return "; give the file with its keys: --encryption-key-file"
	case errors.Is(err, envelope.ErrNoKey), errors.Is(err, envelope.ErrWrongKey):
		return "; nothing was changed: put that key back into --encryption-key-file, after the one that is to encrypt"
	case errors.Is(err, store.ErrNewer):
		return "; run that build, or restore a backup of this one"
	case !errors.Is(err, store.ErrDamaged):
		return ""
	case kind == Claims:
		return "; restore a backup (atollctl hub restore), or move the file away: the hub then learns the claim keys from its " +
			"clusters, and serves none before all of them have told theirs"
	default:
		return "; restore a backup (atollctl hub restore), or move the file away: clusters that --registry-copy does not know " +
			"then register anew, and the first to register under a name gets it"
	}
}
