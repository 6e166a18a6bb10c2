package drivers

import (
	"context"
	"database/sql"
	"errors"

	"gorm.io/gorm"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// order is the application's own.
type order struct {
	ID    string `gorm:"primaryKey"`
	Phone string
}

// placeOrder saves an order by GORM and enqueues its confirmation in the same
// transaction.
func placeOrder(ctx context.Context, db *gorm.DB, box *outbox.Box, o order) error {
	err := db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&o).Error; err != nil {
			return err
		}
		sqlTx, ok := tx.Statement.ConnPool.(*sql.Tx)
		if !ok {
			return errors.New("gorm: no transaction")
		}
		_, err := box.EnqueueSQL(ctx, sqlTx, dispatch.Intent{
			Key:     shop.Key("order/" + o.ID + "/confirmation"),
			Content: dispatch.SMS{To: o.Phone, Body: "We have your order " + o.ID},
		})
		return err
	})
	if err == nil {
		box.Wake()
	}
	return err
}

// shop is the name space of the application's keys.
var shop = func() dispatch.Namespace {
	ns, err := dispatch.NewNamespace("shop-production")
	if err != nil {
		panic(err)
	}
	return ns
}()
