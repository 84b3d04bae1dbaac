// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package signin

import "context"

// lock does nothing: if two processes renew at the same time, the user may have to sign in again.
func lock(context.Context, string) (unlock func(), err error) { return func() {}, nil }
