// SPDX-License-Identifier: Apache-2.0

// Package apitime reads the API server's clock from the answers it gives anyway.
//
// Times that are persisted are the API server's, so that two workers whose own clocks differ write one history, and a new
// leader can tell how long ago something was written (I11). The header Date of every response comes in; Now goes on from
// it by this process's monotonic clock. Until the first response it is the local wall clock.
package apitime
