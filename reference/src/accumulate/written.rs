//! How a [`Block`] is written: as the name of a row of the table, or as its fields.

use super::{Block, BlockOutput};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// The fields of a block.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fields {
    /// `L`: products of one block.
    products: u32,
    /// `F`: fraction bits that are kept of every term, below the largest exponent.
    fraction_bits: u32,
    /// `e0`: the least exponent that terms are aligned to.
    min_exponent: i32,
    /// How the sum is encoded.
    output: BlockOutput,
}

impl Block {
    /// The name of the first row of the table that is this block.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        Self::NAMED.iter().find(|(_, block)| block == self).map(|(name, _)| *name)
    }

    /// The row of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(own, _)| *own == name).map(|(_, block)| *block)
    }
}

impl Serialize for Block {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(name) = self.name() {
            return serializer.serialize_str(name);
        }
        let Self { products, fraction_bits, min_exponent, output } = *self;
        Fields { products, fraction_bits, min_exponent, output }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrFields;

        impl<'de> Visitor<'de> for NameOrFields {
            type Value = Block;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a block or its fields")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Block, E> {
                Block::named(name).ok_or_else(|| {
                    let names = Block::NAMED.map(|(name, _)| name).join(", ");
                    E::custom(format_args!("no block is named `{name}`, there are {names}"))
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Block, A::Error> {
                let Fields { products, fraction_bits, min_exponent, output } =
                    Fields::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Block { products, fraction_bits, min_exponent, output })
            }
        }

        deserializer.deserialize_any(NameOrFields)
    }
}

impl JsonSchema for Block {
    fn schema_name() -> Cow<'static, str> {
        "Block".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let fields = Fields::json_schema(generator);
        let names = Self::NAMED.map(|(name, _)| name);
        json_schema!({
            "description": "The arithmetic of one fused block: the name of a row of the table, or its fields.",
            "anyOf": [{ "type": "string", "enum": names }, fields],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_written_as_its_name_or_its_fields() {
        for (name, block) in Block::NAMED {
            let read: Block = serde_json::from_value(name.into()).unwrap();
            assert_eq!(read, block);
            let written = serde_json::to_value(block).unwrap();
            // Two rows may be the same block: either name will do.
            assert_eq!(serde_json::from_value::<Block>(written).unwrap(), block);
        }
        let odd = Block { products: 7, ..Block::HOPPER };
        let fields = serde_json::json!({
            "products": 7, "fraction_bits": 25, "min_exponent": -133, "output": { "truncate": 23 },
        });
        assert_eq!(serde_json::to_value(odd).unwrap(), fields);
        assert_eq!(serde_json::from_value::<Block>(fields).unwrap(), odd);
    }

    #[test]
    fn errors_say_which_names_there_are() {
        let error = |json| serde_json::from_value::<Block>(json).unwrap_err().to_string();
        assert!(error("kepler".into()).contains("no block is named `kepler`, there are volta"));
        assert!(error(serde_json::json!({ "product": 7 })).contains("unknown field `product`"));
        assert!(error(7.into()).contains("the name of a block or its fields"));
    }
}
