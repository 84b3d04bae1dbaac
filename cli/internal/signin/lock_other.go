// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package signin

import "context"

// lock does nothing: two processes that renew at one time may both have to sign in.
func lock(context.Context, string) (unlock func(), err error) { return func() {}, nil }
