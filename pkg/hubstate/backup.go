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
	"path/filepath"
	"strings"
	"time"

	"navix.sh/atoll/pkg/durable"
)

const (
	archiveFormat = 1
	manifestName  = "manifest.json"
	backupPrefix  = "backup-"
	restorePrefix = "restore-"
)

// Manifest is the first entry of an archive.
type Manifest struct {
	Format    int       `json:"format"`
	Version   string    `json:"version"` // of the hub that wrote the archive
	CreatedAt time.Time `json:"createdAt"`
	Ledger    Identity  `json:"ledger"`
	Files     []File    `json:"files"`
}

// File is one file of an archive.
type File struct {
	Kind   Kind   `json:"kind"`
	Schema uint64 `json:"schema"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

func (f File) name() string { return string(f.Kind) + ".db" }

// Files are the open stores of a running hub.
type Files struct {
	Claims, Registry Store
	// Dir is a directory with space for a copy of both stores.
	Dir     string
	Version string // of the hub
}

// Backup writes an archive to w. The stores can be read and written meanwhile. w may be slow, because the stores are copied before anything
// is sent.
func (f Files) Backup(ctx context.Context, now time.Time, w io.Writer) error {
	if err := durable.MkdirAll(f.Dir, 0o700); err != nil {
		return fmt.Errorf("making room for a backup: %w", err)
	}
	_ = TidyBackups(f.Dir, now) // a hub rarely restarts, so tidy here as well; what cannot be removed now is left for the next backup
	dir, err := os.MkdirTemp(f.Dir, backupPrefix)
	if err != nil {
		return fmt.Errorf("making room for a backup: %w", err)
	}
	err = f.backup(ctx, dir, now, w)
	return errors.Join(err, os.RemoveAll(dir))
}

func (f Files) backup(ctx context.Context, dir string, now time.Time, w io.Writer) error {
	manifest := Manifest{Format: archiveFormat, Version: f.Version, CreatedAt: now.UTC()}
	// Copy the registry second: a cluster is registered before the ledger names it.
	for _, from := range []struct {
		kind Kind
		file Store
	}{{Claims, f.Claims}, {Registry, f.Registry}} {
		path := from.kind.Path(dir)
		if err := from.file.CopyTo(path); err != nil {
			return err
		}
		file := File{Kind: from.kind, Schema: from.file.Schema()}
		var err error
		if file.Bytes, file.SHA256, err = digest(path); err != nil {
			return err
		}
		manifest.Files = append(manifest.Files, file)
	}
	identity, err := LoadIdentity(ctx, f.Registry)
	if err != nil {
		return err
	}
	if identity != nil {
		manifest.Ledger = *identity
	}
	return write(ctx, dir, manifest, w)
}

func digest(path string) (size int64, sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", fmt.Errorf("reading a copy: %w", err)
	}
	hash := sha256.New()
	size, err = io.Copy(hash, f)
	return size, hex.EncodeToString(hash.Sum(nil)), errors.Join(err, f.Close())
}

func write(ctx context.Context, dir string, manifest Manifest, w io.Writer) error {
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	head, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the manifest: %w", err)
	}
	header := func(name string, size int64) error {
		return archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: manifest.CreatedAt, Format: tar.FormatPAX})
	}
	if err := header(manifestName, int64(len(head))); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	if _, err := archive.Write(head); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	for _, f := range manifest.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := header(f.name(), f.Bytes); err != nil {
			return fmt.Errorf("writing the archive: %w", err)
		}
		if err := appendFile(archive, filepath.Join(dir, f.name())); err != nil {
			return err
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

func appendFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading a copy: %w", err)
	}
	_, err = io.Copy(w, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

// abandonedAfter is the age at which a copy for a backup counts as abandoned. It is much longer than a backup takes, because no lock shows
// whether another process still sends the copy.
const abandonedAfter = 24 * time.Hour

// TidyBackups removes only the leftovers of interrupted backups, from a directory that other processes may use.
func TidyBackups(dir string, now time.Time) error {
	if dir == "" {
		return nil
	}
	left, err := filepath.Glob(filepath.Join(dir, backupPrefix+"*"))
	errs := []error{err}
	for _, path := range left {
		number := strings.TrimPrefix(filepath.Base(path), backupPrefix)
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, os.ErrNotExist): // the process that made it has just removed it
		case err != nil:
			errs = append(errs, err)
		case info.IsDir() && strings.Trim(number, "0123456789") == "" && now.Sub(info.ModTime()) > abandonedAfter:
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// Tidy removes the leftovers of interrupted backups, restores and migrations from a data directory whose stores this process has open.
func Tidy(dir string) error {
	var errs []error
	for _, prefix := range []string{backupPrefix, restorePrefix, migratePrefix} {
		left, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
		errs = append(errs, err)
		for _, path := range left {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}
