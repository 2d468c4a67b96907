//! The type snowflake for tokio-postgres and postgres, for columns and parameters of either type.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::types::{to_sql_checked, FromSql, IsNull, ToSql, Type};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Snowflake(pub i64);

impl FromSql<'_> for Snowflake {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        i64::from_sql(&Type::INT8, raw).map(Snowflake)
    }
    fn accepts(ty: &Type) -> bool {
        ty.name() == "snowflake" || *ty == Type::INT8
    }
}

impl ToSql for Snowflake {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.0.to_sql(&Type::INT8, out)
    }
    fn accepts(ty: &Type) -> bool {
        <Snowflake as FromSql>::accepts(ty)
    }
    to_sql_checked!();
}
