// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
)

// A package whose rights the roles are generated from, and which generate.go does not list, loses them with the next `make generate`.
func TestGenerateListsEveryPackageWithRights(t *testing.T) {
	directives, err := os.ReadFile("generate.go")
	must.Succeed(t, err)
	listed := strings.Fields(string(directives))
	found := map[string]bool{}
	err = filepath.WalkDir("internal", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte("\n// +kubebuilder:rbac:")) {
			found["paths=./"+filepath.ToSlash(filepath.Dir(path))] = true
		}
		return err
	})
	if err != nil || len(found) == 0 {
		t.Fatal(len(found), err)
	}
	for arg := range found {
		count := 0
		for _, l := range listed {
			if l == arg {
				count++
			}
		}
		if count != 1 {
			t.Errorf("generate.go lists %s %d times, want once", arg, count)
		}
	}
}
