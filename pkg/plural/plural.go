// SPDX-License-Identifier: Apache-2.0

// Package plural writes numbers of things in messages.
package plural

import "fmt"

// Of is a number of things whose plural has an s.
func Of[N int | int32](n N, what string) string { return Form(n, what, what+"s") }

// Form is a number with what follows it: for one, and for any other number.
func Form[N int | int32](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
