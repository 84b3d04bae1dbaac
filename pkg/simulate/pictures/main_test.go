// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
)

const docs = "../../../docs"

// The committed files are the current output.
func TestPicturesAreUpToDate(t *testing.T) {
	files, err := render(docs)
	must.Succeed(t, err)
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the autoscaler does now (%v): run `go generate ./pkg/simulate/...`", name, err)
		}
		if name == page {
			continue
		}
		if !strings.Contains(string(files[page]), "("+name+")") {
			t.Errorf("%s does not show %s", page, name)
		}
		wellFormed(t, name, want)
	}
	committed, err := filepath.Glob(filepath.Join(docs, picturesDir, "*"))
	must.Succeed(t, err)
	for _, file := range committed {
		if files[filepath.Join(picturesDir, filepath.Base(file))] == nil {
			t.Errorf("no scenario draws %s", file)
		}
	}
}

func wellFormed(t *testing.T, name string, data []byte) {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(data))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
	}
}
