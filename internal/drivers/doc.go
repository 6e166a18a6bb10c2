// Package drivers tests that messages can be enqueued through database/sql with
// either of the drivers for Postgres. It is a module of its own so that the
// library doesn't require them.
package drivers
