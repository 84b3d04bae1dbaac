// SPDX-License-Identifier: Apache-2.0

// Package must ends a test at an error that it does not examine.
package must

import "testing"

// Succeed ends the test if there is an error.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
