// SPDX-License-Identifier: Apache-2.0

package hubstate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/store"
)

// Restored is the result of a restore.
type Restored struct {
	Manifest
	// Registered and Forgotten are the names of the clusters that the existing registry has, as registered or forgotten, and the backup lacks.
	Registered, Forgotten []string
	// Unreadable is the error for which nothing of the existing registry could be kept.
	Unreadable error
	// Kept: the catalogue, access keys, roles and allotments of the existing registry were kept. Fresh: they were taken from the backup,
	// because the existing registry was begun after a loss. Neither is set if there is no readable registry.
	Kept, Fresh bool
}

// Clusters describes the clusters that the hub will have, and the origin of its catalogue, keys and roles.
func (r Restored) Clusters() string {
	const rest = " Catalogue, access keys, roles and allotments are "
	switch {
	case r.Kept:
		return r.clusters() + rest + "those that were there."
	case r.Fresh:
		return r.clusters() + rest + "the backup's, because a hub had begun anew there."
	default:
		return r.clusters()
	}
}

func (r Restored) clusters() string {
	var kept []string
	if len(r.Registered) > 0 {
		kept = append(kept, "registered since: "+strings.Join(r.Registered, ", "))
	}
	if len(r.Forgotten) > 0 {
		kept = append(kept, "forgotten since: "+strings.Join(r.Forgotten, ", "))
	}
	switch {
	case r.Unreadable != nil:
		return fmt.Sprintf("The clusters are the backup's, because the registry that was there cannot be read: %v. Clusters that were "+
			"registered or forgotten since are not known, and are not waited for.", r.Unreadable)
	case kept == nil:
		return "The clusters are the backup's."
	default:
		return "The clusters are the backup's, and of the registry that was there: " + strings.Join(kept, "; ") + "."
	}
}

// keepLive merges the registry of a data directory, if there is one, into the staged one. Without the clusters that registered after the
// backup, the hub would not wait for their keys, and it would admit clusters that were forgotten after the backup. keepLive does not change
// the existing file.
func keepLive(ctx context.Context, stage, dir string, sealer *envelope.Sealer, out *Restored) error {
	beside := filepath.Join(stage, "live")
	if err := os.Mkdir(beside, 0o700); err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	if err := copyFile(Registry.Path(dir), Registry.Path(beside)); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	live, err := OpenSealed(beside, Registry, sealer)
	if errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrNewer) {
		out.Unreadable = err
		return nil
	} else if err != nil {
		return err
	}
	backup, err := OpenSealed(stage, Registry, sealer)
	if err != nil {
		return errors.Join(err, live.Close())
	}
	err = mergeFiles(ctx, live, backup, out)
	if err = errors.Join(err, live.Close(), backup.Close()); err != nil || out.Unreadable != nil {
		return err
	}
	return os.Rename(Registry.Path(beside), Registry.Path(stage))
}

// mergeFiles writes the merged records to live, whose revision continues.
func mergeFiles(ctx context.Context, live, backup *store.Bolt, out *Restored) error {
	there, known, err := recordsOf(ctx, live)
	if ctx.Err() != nil {
		return ctx.Err()
	} else if err != nil {
		out.Unreadable = err
		return nil
	}
	archived, before, err := recordsOf(ctx, backup)
	if err != nil {
		return err
	}
	newer, older := known, before
	if there.followed(archived) {
		newer, older = before, known
		if err := SaveIdentity(ctx, live, *archived.identity); err != nil {
			return err
		}
	}
	if err := mergeProofs(ctx, live, backup); err != nil {
		return err
	}
	if out.Fresh, err = begunAnew(ctx, live, backup); err != nil {
		return err
	}
	if out.Kept = !out.Fresh; out.Fresh {
		if _, err := mirror(ctx, backup, live, unmerged); err != nil {
			return err
		}
	}
	if err := mergeCA(ctx, live, backup, out.Fresh); err != nil {
		return err
	}
	merged := Merge(newer, older)
	out.Registered, out.Forgotten = beyond(before, merged)
	for _, r := range merged {
		if err := SaveRecord(ctx, live, r); err != nil {
			return err
		}
	}
	return nil
}

// begunAnew reports whether the existing registry was begun after a loss. The first hub on a registry creates an id for its catalogue, so
// the ids differ then. A backup of a build without catalogues has no id, and the result is false.
func begunAnew(ctx context.Context, live, backup store.Store) (bool, error) {
	before, ok, err := backup.Get(ctx, CatalogueKey)
	if err != nil || !ok {
		return false, err
	}
	now, _, err := live.Get(ctx, CatalogueKey)
	return !bytes.Equal(now.Value, before.Value), err
}

// unmerged reports whether an entry of the registry is taken from one side without a merge.
func unmerged(key string) bool {
	return !strings.HasPrefix(key, RecordPrefix) && !strings.HasPrefix(key, LedgerKey) && key != proofsKey && key != AuthorityKey
}

// mergeCA keeps the later CA. If both have the same generation, a fresh registry gets the backup's CA, because the clusters from before the
// loss trust that one.
func mergeCA(ctx context.Context, live, backup store.Store, fresh bool) error {
	archived, _, err := LoadAuthority(ctx, backup)
	if err != nil {
		return err
	}
	there, _, err := LoadAuthority(ctx, live)
	if err != nil {
		return err
	}
	same := slices.EqualFunc(there.CAs, archived.CAs, func(a, b CA) bool { return bytes.Equal(a.Cert, b.Cert) })
	if fresh && len(archived.CAs) > 0 && archived.Generation == there.Generation && !same {
		return SaveAuthority(ctx, live, archived.Lasting())
	}
	return MergeAuthority(ctx, live, archived)
}

// mergeProofs keeps the secrets of both sides, because clusters may hold claims that were sent under either.
func mergeProofs(ctx context.Context, live, backup store.Store) error {
	there, err := LoadProofs(ctx, live)
	if err != nil {
		return err
	}
	archived, err := LoadProofs(ctx, backup)
	if err != nil || len(archived.Secrets) == 0 {
		return err
	}
	return SaveProofs(ctx, live, MergeProofs(there, archived))
}

func recordsOf(ctx context.Context, registry *store.Bolt) (c copyOf, records []Record, err error) {
	if c.identity, err = LoadIdentity(ctx, registry); err != nil {
		return c, nil, err
	}
	if c.revision, err = registry.Revision(); err != nil {
		return c, nil, err
	}
	records, err = LoadRecords(ctx, registry)
	return c, records, err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	out, err := create(to)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), in.Close())
}
