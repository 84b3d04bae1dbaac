// SPDX-License-Identifier: Apache-2.0

package hubstate

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"navix.sh/atoll/pkg/durable"
	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/store"
)

// Reasons for which an archive is rejected.
var (
	ErrArchive = errors.New("the archive is damaged, cut off or none of a hub")
	ErrExists  = errors.New("there are files of a hub already")
)

const maxManifest = 1 << 20

// Inspect reads an archive to its end and verifies its checksums.
func Inspect(r io.Reader) (Manifest, error) {
	return read(r, func(File) (io.WriteCloser, error) { return discard{io.Discard}, nil })
}

type discard struct{ io.Writer }

func (discard) Close() error { return nil }

// asideSuffix is the suffix of the files that a restore keeps.
const asideSuffix = ".before-restore"

// Restore replaces the files of a data directory with those of an archive. Without force it fails if files exist; in any case it fails if a
// hub has them open. It keeps the existing files in the same directory, with names that end in ".before-restore", and merges the clusters
// of the existing registry into the new one. sealer has the keys of encrypted files; if it is set, the new files are encrypted.
func Restore(ctx context.Context, r io.Reader, dir string, force bool, sealer *envelope.Sealer) (out Restored, err error) {
	if err := free(dir, force); err != nil {
		return out, err
	}
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return out, fmt.Errorf("restoring: %w", err)
	}
	stage, err := os.MkdirTemp(dir, restorePrefix)
	if err != nil {
		return out, fmt.Errorf("restoring: %w", err)
	}
	out.Manifest, err = read(r, func(f File) (io.WriteCloser, error) {
		return create(f.Kind.Path(stage))
	})
	if err == nil {
		err = markRestored(ctx, stage, sealer)
	}
	if err == nil {
		err = keepLive(ctx, stage, dir, sealer, &out)
	}
	if err == nil {
		err = install(stage, dir)
	}
	return out, errors.Join(err, os.RemoveAll(stage))
}

// free returns an error if the files of a directory must not be replaced.
func free(dir string, force bool) error {
	for _, kind := range []Kind{Claims, Registry} {
		path := kind.Path(dir)
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return fmt.Errorf("restoring: %w", err)
		}
		if !force {
			return fmt.Errorf("%w: %s", ErrExists, path)
		}
		if store.InUse(path) {
			return fmt.Errorf("%s is open: stop the hub first: %w", path, store.ErrLocked)
		}
	}
	return nil
}

// read unpacks an archive. If it returns no error, everything that it wrote to the writers of open is complete.
func read(r io.Reader, open func(File) (io.WriteCloser, error)) (Manifest, error) {
	zipped, err := gzip.NewReader(r)
	if err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrArchive, err)
	}
	archive := tar.NewReader(zipped)
	manifest, err := readManifest(archive)
	if err != nil {
		return Manifest{}, err
	}
	for _, f := range manifest.Files {
		header, err := archive.Next()
		if err != nil || header.Name != f.name() || header.Size != f.Bytes {
			return Manifest{}, damaged(err, "no %s of %d bytes where it belongs", f.name(), f.Bytes)
		}
		if err := extract(archive, f, open); err != nil {
			return Manifest{}, err
		}
	}
	// Read to the end, where gzip's own checksum is.
	if _, err := archive.Next(); !errors.Is(err, io.EOF) {
		return Manifest{}, damaged(err, "it does not end where its manifest says")
	}
	if _, err := io.Copy(io.Discard, zipped); err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrArchive, err)
	}
	return manifest, nil
}

func damaged(cause error, format string, args ...any) error {
	err := fmt.Errorf("%w: %s", ErrArchive, fmt.Sprintf(format, args...))
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

func readManifest(archive *tar.Reader) (m Manifest, err error) {
	header, err := archive.Next()
	if err != nil || header.Name != manifestName || header.Size > maxManifest {
		return m, damaged(err, "no manifest")
	}
	data, err := io.ReadAll(archive)
	if err != nil {
		return m, fmt.Errorf("%w: %w", ErrArchive, err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%w: reading the manifest: %w", ErrArchive, err)
	}
	if m.Format > archiveFormat {
		return m, fmt.Errorf("the archive has format %d and this build knows up to %d: %w", m.Format, archiveFormat, store.ErrNewer)
	}
	var kinds []Kind
	for _, f := range m.Files {
		kinds = append(kinds, f.Kind)
	}
	if !slices.Equal(kinds, []Kind{Claims, Registry}) {
		return m, fmt.Errorf("%w: it holds %q", ErrArchive, kinds)
	}
	return m, nil
}

func extract(archive io.Reader, f File, open func(File) (io.WriteCloser, error)) error {
	out, err := open(f)
	if err != nil {
		return fmt.Errorf("restoring %s: %w", f.name(), err)
	}
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, hash), archive)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrArchive, f.name(), err)
	}
	if n != f.Bytes || hex.EncodeToString(hash.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("%w: %s is not what its checksum says", ErrArchive, f.name())
	}
	return nil
}

// markRestored opens the files, which checks and migrates them, and marks them as restored for the next hub that starts on them.
func markRestored(ctx context.Context, dir string, sealer *envelope.Sealer) error {
	registry, err := OpenSealed(dir, Registry, sealer)
	if err != nil {
		return err
	}
	err = dropInvitations(ctx, registry)
	if err := errors.Join(err, registry.Close()); err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	claims, err := OpenSealed(dir, Claims, sealer)
	if err != nil {
		return err
	}
	ledger, err := LoadLedger(ctx, claims)
	if err == nil {
		if ledger == nil {
			ledger = &Ledger{Identity: Identity{ID: unnamed}}
		}
		ledger.Restored = true
		err = SaveLedger(ctx, claims, *ledger)
	}
	return errors.Join(err, claims.Close())
}

// install moves the ledger into place last. A crash between the two then leaves the previous ledger with a registry that has all its
// clusters.
func install(from, to string) error {
	for _, kind := range []Kind{Registry, Claims} {
		path := kind.Path(to)
		if err := setAside(path); err != nil {
			return fmt.Errorf("restoring: %w", err)
		}
		if err := durable.Rename(kind.Path(from), path); err != nil {
			return fmt.Errorf("restoring: %w", err)
		}
	}
	return nil
}

// synced is a file that Close makes durable.
type synced struct{ *os.File }

func create(path string) (synced, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return synced{f}, err
}

func (s synced) Close() error { return errors.Join(s.Sync(), s.File.Close()) }

// setAside keeps a file under another name that no earlier restore used: a second restore, made because the first used the wrong archive,
// must not overwrite the hub's original files. If the file system supports links, the file also keeps its own name until the new one
// replaces it, so that a restore that was interrupted and is repeated still finds the registry.
func setAside(path string) error {
	present, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	aside := path + asideSuffix
	for n := 2; ; n++ {
		kept, err := os.Lstat(aside)
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		if os.SameFile(kept, present) {
			return nil // an interrupted restore has already linked it
		}
		aside = fmt.Sprintf("%s.%d%s", path, n, asideSuffix)
	}
	if os.Link(path, aside) == nil {
		return nil
	}
	return os.Rename(path, aside)
}
