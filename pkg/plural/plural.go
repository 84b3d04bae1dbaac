// SPDX-License-Identifier: Apache-2.0

// Package plural formats numbers of things in messages.
package plural

import "fmt"

// Of formats a number of things whose plural ends with s.
func Of[N int | int32](n N, what string) string { return Form(n, what, what+"s") }

// Form formats a number followed by one if n is 1, else by many.
func Form[N int | int32](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
