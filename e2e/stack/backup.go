// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"os"
)

// Unzip reads a file that gzip wrote, such as a backup of the hub, so that it can be searched.
func Unzip(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening an archive: %w", err)
	}
	defer file.Close()
	return Unzipped(file)
}

// Unzipped reads what gzip wrote.
func Unzipped(r io.Reader) ([]byte, error) {
	zipped, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("reading an archive: %w", err)
	}
	all, err := io.ReadAll(zipped)
	if err != nil {
		return nil, fmt.Errorf("reading an archive: %w", err)
	}
	return all, nil
}

// Forms returns how a text may stand in what hub and workers keep: as it is, and within what is written in base64, as the parameters of
// claims are in the hub's store.
func Forms(text string) []string {
	forms := []string{text}
	for before := range 3 {
		written := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), text...))
		// The first characters have bits of what is before it, the last one of what is behind it.
		forms = append(forms, written[(before*8+5)/6:(before+len(text))*8/6])
	}
	return forms
}

// Holds reports whether data has a text in any of its forms.
func Holds(data []byte, text string) bool {
	for _, form := range Forms(text) {
		if bytes.Contains(data, []byte(form)) {
			return true
		}
	}
	return false
}
