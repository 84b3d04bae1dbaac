// SPDX-License-Identifier: Apache-2.0

package registrycopy

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"navix.sh/atoll/pkg/durable"
)

// File is a place on a volume other than the hub's.
type File string

func (f File) String() string { return string(f) }

// Read implements Place.
func (f File) Read(context.Context) ([]byte, error) {
	data, err := os.ReadFile(string(f))
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNone
	}
	return data, err
}

// Write implements Place. Afterwards the file is complete or unchanged.
func (f File) Write(_ context.Context, document []byte) error {
	return durable.WriteFile(string(f), 0o600, func(part *os.File) error {
		_, err := part.Write(document)
		return err
	})
}

// Usable returns an error if the file neither exists nor can be created.
func (f File) Usable() error {
	if _, err := os.Stat(string(f)); err == nil {
		return nil
	}
	part, err := os.CreateTemp(filepath.Dir(string(f)), "."+filepath.Base(string(f))+"-*")
	if err != nil {
		return err
	}
	return errors.Join(part.Close(), os.Remove(part.Name()))
}
